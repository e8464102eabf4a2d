package apply

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/typed"
	"sigs.k8s.io/structured-merge-diff/v4/value"

	"binnacle/services/apiserver/internal/registry"
)

// asTyped returns an object with the merge rules of its kind.
func (v *view) asTyped(obj registry.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if u, ok := obj.(runtime.Unstructured); ok {
		return v.typed().FromUnstructured(u.UnstructuredContent(), options...)
	}
	return v.typed().FromStructured(obj, options...)
}

// typedDifferences compares two objects without a Go type.
func (v *view) typedDifferences(live, obj registry.Object) (*changes, error) {
	live, obj = withoutSame(live, obj)
	a, err := v.asTyped(live, typed.AllowDuplicates)
	if err != nil {
		return nil, err
	}
	b, err := v.asTyped(obj, typed.AllowDuplicates)
	if err != nil {
		return nil, err
	}
	d, err := compare(a, b)
	if err != nil {
		return nil, err
	}
	return &changes{set: d.Modified.Union(d.Added), removed: d.Removed}, nil
}

// foreign compares two values of a type that encodes itself by their encodings.
func (c *comparer) foreign(s *shape, a, b reflect.Value, hasA, hasB bool) {
	d, err := compare(typedValue(s, a, hasA), typedValue(s, b, hasB))
	if err != nil {
		c.errs = append(c.errs, err)
		return
	}
	graft := func(to, from *fieldpath.Set) {
		from.Iterate(func(p fieldpath.Path) { to.Insert(append(c.path.Copy(), p...)) })
	}
	graft(c.set.root, d.Modified)
	graft(c.set.root, d.Added)
	graft(c.removed.root, d.Removed)
	// The root of a set has no path of its own.
	switch {
	case !hasA:
		c.set.insert(c.path)
	case !hasB:
		c.removed.insert(c.path)
	case d.IsSame() && !equal(s, a, b, exactly):
		c.set.insert(c.path)
	}
}

func typedValue(s *shape, v reflect.Value, has bool) *typed.TypedValue {
	if !has {
		return typed.AsTypedUnvalidated(nil, s.typed.Schema, s.typed.TypeRef)
	}
	var plain any
	if v.IsValid() {
		plain = encoded(v)
	}
	return typed.AsTypedUnvalidated(value.NewValueInterface(plain), s.typed.Schema, s.typed.TypeRef)
}
