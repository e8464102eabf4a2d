package views

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// structures is a list of Go structs. Each element is converted when it is first read.
type structures struct {
	shapes   *Shapes
	of       reflect.Value
	elements []ref.Val // nil until first read
	whole    traits.Lister
}

var _ traits.Lister = (*structures)(nil)

func (l *structures) at(i int) ref.Val {
	if l.elements[i] == nil {
		l.elements[i] = newStructure(l.shapes, l.of.Index(i))
	}
	return l.elements[i]
}

// all returns the list as a CEL list.
func (l *structures) all() traits.Lister {
	if l.whole == nil {
		for i := range l.elements {
			l.at(i)
		}
		l.whole = types.NewRefValList(types.DefaultTypeAdapter, l.elements)
	}
	return l.whole
}

// Get implements traits.Indexer.
func (l *structures) Get(index ref.Val) ref.Val {
	if i, ok := index.(types.Int); ok && i >= 0 && int(i) < len(l.elements) {
		return l.at(int(i))
	}
	return l.all().Get(index) // returns the right error
}

// Iterator implements traits.Iterable.
func (l *structures) Iterator() traits.Iterator { return &walk{of: l} }

// walk is an iterator over structures.
type walk struct {
	traits.Iterator // for methods that are never called
	of              *structures
	next            int
}

// HasNext implements traits.Iterator.
func (w *walk) HasNext() ref.Val { return types.Bool(w.next < len(w.of.elements)) }

// Next implements traits.Iterator.
func (w *walk) Next() ref.Val {
	if w.next >= len(w.of.elements) {
		return nil
	}
	w.next++
	return w.of.at(w.next - 1)
}

// Size implements traits.Sizer.
func (l *structures) Size() ref.Val { return types.Int(len(l.elements)) }

// Type implements ref.Val.
func (*structures) Type() ref.Type { return types.ListType }

// Add implements traits.Adder.
func (l *structures) Add(other ref.Val) ref.Val { return l.all().Add(other) }

// Contains implements traits.Container.
func (l *structures) Contains(value ref.Val) ref.Val { return l.all().Contains(value) }

// Equal implements ref.Val.
func (l *structures) Equal(other ref.Val) ref.Val { return l.all().Equal(other) }

// ConvertToNative implements ref.Val.
func (l *structures) ConvertToNative(want reflect.Type) (any, error) {
	return l.all().ConvertToNative(want)
}

// ConvertToType implements ref.Val.
func (l *structures) ConvertToType(to ref.Type) ref.Val { return l.all().ConvertToType(to) }

// IsZeroValue implements traits.Zeroer.
func (l *structures) IsZeroValue() bool { return len(l.elements) == 0 }

// Value implements ref.Val. It returns a list of trees.
func (l *structures) Value() any {
	out := make([]any, len(l.elements))
	for i := range out {
		out[i] = l.at(i).Value()
	}
	return out
}
