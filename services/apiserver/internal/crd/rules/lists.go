package rules

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"binnacle/services/apiserver/internal/json/tape"
)

// list is either an array of a document or the concatenation of other lists. A concatenation has
// no doc. Its items are in computed.
type list struct {
	shape    *schemaShape
	doc      *tape.Doc
	node     tape.Ref
	computed []ref.Val
}

var _ traits.Lister = (*list)(nil)

// allItems returns all items.
func (l *list) allItems() []ref.Val {
	if l.doc == nil {
		return l.computed
	}
	all := make([]ref.Val, 0, l.doc.Len(l.node))
	for i, end := l.doc.First(l.node), l.doc.Next(l.node); i < end; i = l.doc.Next(i) {
		all = append(all, celValue(l.shape.values, l.doc, i))
	}
	return all
}

// ConvertToNative implements ref.Val.
func (l *list) ConvertToNative(expected reflect.Type) (any, error) {
	if expected.Kind() == reflect.Slice {
		return l.Value(), nil
	}
	return nil, fmt.Errorf("type conversion error from '%s' to '%s'", l.Type(), expected)
}

// ConvertToType implements ref.Val.
func (l *list) ConvertToType(expected ref.Type) ref.Val {
	switch expected {
	case types.ListType:
		return l
	case types.TypeType:
		return types.ListType
	}
	return types.NewErr("type conversion error from '%s' to '%s'", l.Type(), expected.TypeName())
}

// Type implements ref.Val.
func (l *list) Type() ref.Type { return types.ListType }

// Value implements ref.Val.
func (l *list) Value() any {
	if l.doc != nil {
		return l.doc.Any(l.node)
	}
	all := make([]any, len(l.computed))
	for i, v := range l.computed {
		all[i] = v.Value()
	}
	return all
}

// Size implements traits.Sizer.
func (l *list) Size() ref.Val {
	if l.doc == nil {
		return types.Int(len(l.computed))
	}
	return types.Int(l.doc.Len(l.node))
}

// Get implements traits.Indexer.
func (l *list) Get(index ref.Val) ref.Val {
	i, ok := index.(types.Int)
	if !ok {
		return types.ValOrErr(index, "unsupported index: %v", index)
	}
	if i < 0 || i >= l.Size().(types.Int) {
		return types.NewErr("index out of bounds: %v", index)
	}
	if l.doc == nil {
		return l.computed[i]
	}
	return celValue(l.shape.values, l.doc, l.doc.Item(l.node, int(i)))
}

// Iterator implements traits.Iterable.
func (l *list) Iterator() traits.Iterator {
	it := &listIterator{list: l}
	if l.doc != nil {
		it.next = l.doc.First(l.node)
	}
	return it
}

// listIterator iterates over a list.
type listIterator struct {
	*list
	next  tape.Ref // next item of a document
	index int      // index of the next item of a computed list
}

// HasNext implements traits.Iterator.
func (it *listIterator) HasNext() ref.Val {
	if it.doc == nil {
		return types.Bool(it.index < len(it.computed))
	}
	return types.Bool(it.next < it.doc.Next(it.node))
}

// Next implements traits.Iterator.
func (it *listIterator) Next() ref.Val {
	if it.doc == nil {
		it.index++
		return it.computed[it.index-1]
	}
	r := it.next
	it.next = it.doc.Next(r)
	return celValue(it.shape.values, it.doc, r)
}

// Contains implements traits.Container.
func (l *list) Contains(value ref.Val) ref.Val {
	if types.IsUnknownOrError(value) {
		return value
	}
	var firstErr ref.Val
	for it := l.Iterator(); it.HasNext() == types.True; {
		eq := it.Next().Equal(value)
		if eq == types.True {
			return types.True
		}
		if _, ok := eq.(types.Bool); !ok && firstErr == nil {
			firstErr = types.MaybeNoSuchOverloadErr(eq)
		}
	}
	if firstErr != nil {
		return firstErr
	}
	return types.False
}

// Equal implements ref.Val. Sets and keyed lists are equal in any order.
func (l *list) Equal(other ref.Val) ref.Val {
	lister, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if l.Size() != lister.Size() {
		return types.False
	}
	switch l.shape.listType {
	case setList:
		return l.equalSet(lister)
	case keyedList:
		return l.equalKeyed(lister)
	}
	mine, theirs := l.Iterator(), lister.Iterator()
	for mine.HasNext() == types.True {
		if eq := mine.Next().Equal(theirs.Next()); eq != types.True {
			return eq
		}
	}
	return types.True
}

// equalSet compares sets of equal size.
func (l *list) equalSet(other traits.Lister) ref.Val {
	identities := map[string]bool{}
	for _, v := range l.allItems() {
		identities[identityOf(v)] = true
	}
	for it := other.Iterator(); it.HasNext() == types.True; {
		if !identities[identityOf(it.Next())] {
			return types.False
		}
	}
	return types.True
}

// equalKeyed compares keyed lists of equal size.
func (l *list) equalKeyed(other traits.Lister) ref.Val {
	byKeys := map[string]ref.Val{}
	for _, value := range l.allItems() {
		byKeys[l.keysOf(value)] = value
	}
	for it := other.Iterator(); it.HasNext() == types.True; {
		value := it.Next()
		item, ok := byKeys[l.keysOf(value)]
		if !ok {
			return types.False
		}
		if eq := item.Equal(value); eq != types.True {
			return eq
		}
	}
	return types.True
}

// Add implements traits.Adder. A set gains only new items. In a keyed list, items with known keys
// are replaced in place.
func (l *list) Add(other ref.Val) ref.Val {
	lister, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	result := &list{shape: l.shape, computed: slices.Clip(l.allItems())}
	indexes := map[string]int{}
	idOf := identityOf
	if l.shape.listType == keyedList {
		idOf = l.keysOf
	}
	if l.shape.listType != atomicList {
		for i, value := range result.computed {
			indexes[idOf(value)] = i
		}
	}
	for it := lister.Iterator(); it.HasNext() == types.True; {
		value := it.Next()
		if l.shape.listType == atomicList {
			result.computed = append(result.computed, value)
			continue
		}
		id := idOf(value)
		i, ok := indexes[id]
		switch {
		case !ok:
			indexes[id] = len(result.computed)
			result.computed = append(result.computed, value)
		case l.shape.listType == keyedList:
			result.computed[i] = value
		}
	}
	return result
}

// identityOf returns a string that is equal for equal values.
func identityOf(value ref.Val) string {
	switch value := value.(type) {
	case *object:
		return string(value.doc.AppendCanonical([]byte("o"), value.node))
	case *list:
		if value.doc != nil {
			return string(value.doc.AppendCanonical([]byte("l"), value.node))
		}
	}
	return fmt.Sprintf("%s %v", value.Type().TypeName(), value.Value())
}

// keysOf returns a string that is equal for items with equal keys.
func (l *list) keysOf(v ref.Val) string {
	m, ok := v.(traits.Mapper)
	if !ok {
		return ""
	}
	var builder strings.Builder
	for _, k := range l.shape.keys {
		if key, found := findMember(m, k); found {
			builder.WriteString(identityOf(key))
		}
		builder.WriteByte(0)
	}
	return builder.String()
}
