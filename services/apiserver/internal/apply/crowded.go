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

// errCrowded is for objects with more: what an apply makes of one is refused, what
// other writes make of one has no owners.
func errCrowded() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("an object or list has more than %d members whose owners would be told apart", MaxMembers))
}

// crowded tells whether a value has more than MaxMembers in one place.
func crowded(t *typed.TypedValue) bool {
	return crowdedValue(t.Schema(), t.TypeRef(), t.AsValue())
}

func crowdedValue(s *smd.Schema, ref smd.TypeRef, x value.Value) (is bool) {
	if x == nil || x.IsNull() {
		return false
	}
	atom, ok := s.Resolve(ref)
	switch {
	case !ok:
		return false
	case x.IsMap() && atom.Map != nil && atom.Map.ElementRelationship != smd.Atomic:
		m := x.AsMap()
		if m.Length() > MaxMembers {
			return true
		}
		m.Iterate(func(key string, y value.Value) bool {
			of := atom.Map.ElementType
			if f, ok := atom.Map.FindField(key); ok {
				of = f.Type
			}
			is = crowdedValue(s, of, y)
			return !is
		})
	case x.IsList() && atom.List != nil && atom.List.ElementRelationship != smd.Atomic:
		l := x.AsList()
		if l.Length() > MaxMembers {
			return true
		}
		for i := range l.Length() {
			if crowdedValue(s, atom.List.ElementType, l.At(i)) {
				return true
			}
		}
	}
	return is
}

// compare is what structured-merge-diff makes of two values.
func compare(a, b *typed.TypedValue) (*typed.Comparison, error) {
	if crowded(a) || crowded(b) {
		return nil, errCrowded()
	}
	return a.Compare(b)
}
