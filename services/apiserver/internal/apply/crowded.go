package apply

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
	"sigs.k8s.io/structured-merge-diff/v4/typed"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// MaxMembers is how many members of one object or list may have owners of their own
// where structured-merge-diff makes sets of them: that takes time by the square.
const MaxMembers = 20_000

// MaxPaths is how many bytes the paths of all members may have together that are told apart: they are
// written out for what is wrong with each, and with them the keys that elements are told apart by, again
// and again.
const MaxPaths = 32 << 20

// errCrowded is for objects with more: what an apply makes of one is refused, what
// other writes make of one has no owners.
func errCrowded() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("an object or list has more than %d members whose owners would be told apart, or their paths have more than %d bytes", MaxMembers, MaxPaths))
}

// crowded tells whether a value has more than MaxMembers in one place, or MaxPaths in all.
func crowded(t *typed.TypedValue) bool {
	w := crowd{schema: t.Schema()}
	return w.visit(t.TypeRef(), t.AsValue(), 0)
}

// crowd goes through a value.
type crowd struct {
	schema *smd.Schema
	paths  int // bytes so far
}

// visit tells whether there are too many, in a value whose path has so many bytes.
func (w *crowd) visit(ref smd.TypeRef, x value.Value, path int) (is bool) {
	if w.paths += path; w.paths > MaxPaths {
		return true
	}
	if x == nil || x.IsNull() {
		return false
	}
	atom, _ := w.schema.Resolve(ref) // what is of no type is visited for the sake of its paths
	switch {
	case x.IsMap():
		m := x.AsMap()
		if atom.Map != nil && atom.Map.ElementRelationship != smd.Atomic && m.Length() > MaxMembers {
			return true
		}
		m.Iterate(func(key string, y value.Value) bool {
			of := smd.TypeRef{}
			if atom.Map != nil {
				of = atom.Map.ElementType
				if f, ok := atom.Map.FindField(key); ok {
					of = f.Type
				}
			}
			is = w.visit(of, y, path+len(key)+1)
			return !is
		})
	case x.IsList():
		l := x.AsList()
		told := atom.List != nil && atom.List.ElementRelationship != smd.Atomic
		if told && l.Length() > MaxMembers {
			return true
		}
		of := smd.TypeRef{}
		if atom.List != nil {
			of = atom.List.ElementType
		}
		for i := range l.Length() {
			y := l.At(i)
			step := indexStep
			if told {
				step += keyOf(atom.List, y)
			}
			if w.visit(of, y, path+step) {
				return true
			}
		}
	}
	return is
}

// indexStep is about what the index of an element takes in a path.
const indexStep = 8

// keyOf is how many bytes tell an element of a list apart.
func keyOf(l *smd.List, x value.Value) (n int) {
	switch {
	case x == nil:
	case x.IsString():
		return len(x.AsString())
	case x.IsMap():
		m := x.AsMap()
		for _, key := range l.Keys {
			n += len(key) + 1
			if v, ok := m.Get(key); ok && v != nil && v.IsString() {
				n += len(v.AsString())
			}
		}
	}
	return n
}

// compare is what structured-merge-diff makes of two values.
func compare(a, b *typed.TypedValue) (*typed.Comparison, error) {
	if crowded(a) || crowded(b) {
		return nil, errCrowded()
	}
	return a.Compare(b)
}
