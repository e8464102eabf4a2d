package apply

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
	"sigs.k8s.io/structured-merge-diff/v4/typed"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// MaxMembers is the maximum number of members of one object or list with owners of their own that
// structured-merge-diff processes. Its time grows quadratically.
const MaxMembers = 20_000

// MaxPaths is the maximum total size in bytes of the paths of all members. Paths are formatted for
// each error, including the keys that identify list elements, possibly many times.
const MaxPaths = 32 << 20

// errCrowded returns the error for objects that exceed MaxMembers or MaxPaths. An apply to such an
// object is rejected; after other writes it has no managedFields.
func errCrowded() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("an object or list has more than %d members with separate field owners, or their paths have more than %d bytes", MaxMembers, MaxPaths))
}

// crowded reports whether a value has more than MaxMembers at one path, or exceeds MaxPaths.
func crowded(t *typed.TypedValue) bool {
	w := crowd{schema: t.Schema()}
	return w.visit(t.TypeRef(), t.AsValue(), 0)
}

// crowd walks a value.
type crowd struct {
	schema *smd.Schema
	paths  int // bytes so far
}

// visit reports whether the limits are exceeded by a value whose path has the given size in bytes.
func (w *crowd) visit(ref smd.TypeRef, x value.Value, path int) (is bool) {
	if w.paths += path; w.paths > MaxPaths {
		return true
	}
	if x == nil || x.IsNull() {
		return false
	}
	atom, _ := w.schema.Resolve(ref) // values without a type are visited for their paths
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
		associative := atom.List != nil && atom.List.ElementRelationship != smd.Atomic
		if associative && l.Length() > MaxMembers {
			return true
		}
		of := smd.TypeRef{}
		if atom.List != nil {
			of = atom.List.ElementType
		}
		for i := range l.Length() {
			y := l.At(i)
			step := indexStep
			if associative {
				step += keyOf(atom.List, y)
			}
			if w.visit(of, y, path+step) {
				return true
			}
		}
	}
	return is
}

// indexStep is the approximate size in bytes of an element's index in a path.
const indexStep = 8

// keyOf returns the size in bytes of the key of a list element.
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

// compare compares two values with structured-merge-diff.
func compare(a, b *typed.TypedValue) (*typed.Comparison, error) {
	if crowded(a) || crowded(b) {
		return nil, errCrowded()
	}
	return a.Compare(b)
}
