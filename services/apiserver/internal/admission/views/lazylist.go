package views

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// structures is a list of Go structs. Each element is converted when it is first read.
type structures struct {
	shapes   *StructEncodings
	list     reflect.Value
	elements []ref.Val // nil until first read
	asLister traits.Lister
}

var _ traits.Lister = (*structures)(nil)

func (l *structures) element(i int) ref.Val {
	if l.elements[i] == nil {
		l.elements[i] = newStructure(l.shapes, l.list.Index(i))
	}
	return l.elements[i]
}

// lister returns the list as a CEL list.
func (l *structures) lister() traits.Lister {
	if l.asLister == nil {
		for i := range l.elements {
			l.element(i)
		}
		l.asLister = types.NewRefValList(types.DefaultTypeAdapter, l.elements)
	}
	return l.asLister
}

// Get implements traits.Indexer.
func (l *structures) Get(index ref.Val) ref.Val {
	if i, ok := index.(types.Int); ok && i >= 0 && int(i) < len(l.elements) {
		return l.element(int(i))
	}
	return l.lister().Get(index) // returns the right error
}

// Iterator implements traits.Iterable.
func (l *structures) Iterator() traits.Iterator { return &iterator{list: l} }

// iterator is an iterator over structures.
type iterator struct {
	traits.Iterator // for methods that are never called
	list            *structures
	next            int
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
func (l *structures) Size() ref.Val { return types.Int(len(l.elements)) }

// Type implements ref.Val.
func (*structures) Type() ref.Type { return types.ListType }

// Add implements traits.Adder.
func (l *structures) Add(other ref.Val) ref.Val { return l.lister().Add(other) }

// Contains implements traits.Container.
func (l *structures) Contains(value ref.Val) ref.Val { return l.lister().Contains(value) }

// Equal implements ref.Val.
func (l *structures) Equal(other ref.Val) ref.Val { return l.lister().Equal(other) }

// ConvertToNative implements ref.Val.
func (l *structures) ConvertToNative(expected reflect.Type) (any, error) {
	return l.lister().ConvertToNative(expected)
}

// ConvertToType implements ref.Val.
func (l *structures) ConvertToType(to ref.Type) ref.Val { return l.lister().ConvertToType(to) }

// IsZeroValue implements traits.Zeroer.
func (l *structures) IsZeroValue() bool { return len(l.elements) == 0 }

// Value implements ref.Val. It returns a list of trees.
func (l *structures) Value() any {
	out := make([]any, len(l.elements))
	for i := range out {
		out[i] = l.element(i).Value()
	}
	return out
}
