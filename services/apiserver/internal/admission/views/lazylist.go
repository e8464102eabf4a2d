package views

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// lazyList presents a slice of Go structs to CEL as a list. Each element becomes a lazyStruct when
// it is first read.
type lazyList struct {
	encodings *StructEncodings
	list      reflect.Value // the slice
	elements  []ref.Val     // nil until first read
	wholeList traits.Lister // nil until an operation needs all elements
}

var _ traits.Lister = (*lazyList)(nil)

// element returns the element at an index, which must be in range.
func (l *lazyList) element(i int) ref.Val {
	if l.elements[i] == nil {
		l.elements[i] = newLazyStruct(l.encodings, l.list.Index(i))
	}
	return l.elements[i]
}

// lister returns the whole list as a CEL list.
func (l *lazyList) lister() traits.Lister {
	if l.wholeList == nil {
		for i := range l.elements {
			l.element(i)
		}
		l.wholeList = types.NewRefValList(types.DefaultTypeAdapter, l.elements)
	}
	return l.wholeList
}

// Get implements traits.Indexer.
func (l *lazyList) Get(index ref.Val) ref.Val {
	if i, ok := index.(types.Int); ok && i >= 0 && int(i) < len(l.elements) {
		return l.element(int(i))
	}
	return l.lister().Get(index) // returns the right error
}

// Iterator implements traits.Iterable.
func (l *lazyList) Iterator() traits.Iterator { return &iterator{list: l} }

// iterator iterates over a lazyList. It embeds a nil traits.Iterator for the methods of ref.Val,
// which CEL does not call on iterators.
type iterator struct {
	traits.Iterator
	list *lazyList
	next int
}

// HasNext implements traits.Iterator.
func (i *iterator) HasNext() ref.Val { return types.Bool(i.next < len(i.list.elements)) }

// Next implements traits.Iterator.
func (i *iterator) Next() ref.Val {
	if i.next >= len(i.list.elements) {
		return nil
	}
	i.next++
	return i.list.element(i.next - 1)
}

// Size implements traits.Sizer.
func (l *lazyList) Size() ref.Val { return types.Int(len(l.elements)) }

// Type implements ref.Val.
func (*lazyList) Type() ref.Type { return types.ListType }

// Add implements traits.Adder.
func (l *lazyList) Add(other ref.Val) ref.Val { return l.lister().Add(other) }

// Contains implements traits.Container.
func (l *lazyList) Contains(value ref.Val) ref.Val { return l.lister().Contains(value) }

// Equal implements ref.Val.
func (l *lazyList) Equal(other ref.Val) ref.Val { return l.lister().Equal(other) }

// ConvertToNative implements ref.Val.
func (l *lazyList) ConvertToNative(expected reflect.Type) (any, error) {
	return l.lister().ConvertToNative(expected)
}

// ConvertToType implements ref.Val.
func (l *lazyList) ConvertToType(to ref.Type) ref.Val { return l.lister().ConvertToType(to) }

// IsZeroValue implements traits.Zeroer.
func (l *lazyList) IsZeroValue() bool { return len(l.elements) == 0 }

// Value implements ref.Val. It returns a []any of maps.
func (l *lazyList) Value() any {
	out := make([]any, len(l.elements))
	for i := range out {
		out[i] = l.element(i).Value()
	}
	return out
}
