package apply

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
	"sigs.k8s.io/structured-merge-diff/v4/typed"
	"sigs.k8s.io/structured-merge-diff/v4/value"

	"binnacle/services/apiserver/internal/registry"
)

// Configure merges a configuration into an object and returns the tree of the result, which may
// share memory with both. It does not change managedFields. It rejects a configuration that sets
// atomic lists, maps or structs. k may be nil for objects with a Go type.
func (f *Fields) Configure(k *registry.Kind, obj runtime.Object, configuration map[string]any) (map[string]any, error) {
	t := f.typeFor(k, obj)
	patch := typed.AsTypedUnvalidated(value.NewValueInterface(configuration), t.Schema, t.TypeRef)
	if crowded(patch) { // before the validation
		return nil, errCrowded()
	}
	patch, err := t.FromUnstructured(configuration)
	if err == nil {
		err = fitting(obj, configuration)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if found := wholes(nil, t.Schema, t.TypeRef, patch.AsValue()); len(found) > 0 {
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s", strings.Join(found, ", "))
	}
	var live *typed.TypedValue
	if u, ok := obj.(runtime.Unstructured); ok {
		live, err = t.FromUnstructured(u.UnstructuredContent(), typed.AllowDuplicates)
	} else {
		live, err = t.FromStructured(obj, typed.AllowDuplicates)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	if crowded(live) {
		return nil, errCrowded()
	}
	merged, err := live.Merge(patch)
	if err != nil {
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	tree, ok := merged.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("failed to convert typed object to object: %T is not an object", merged.AsValue().Unstructured())
	}
	return tree, nil
}

func (f *Fields) typeFor(k *registry.Kind, obj runtime.Object) typed.ParseableType {
	switch {
	case k != nil && k.MergeType != nil:
		return k.MergeType()
	case untypedObject(obj):
		return typed.DeducedParseableType
	}
	return f.types.of(reflect.TypeOf(obj).Elem())
}

// fitting rejects numbers that overflow the Go type. The conversion of a tree to an object would
// truncate them.
func fitting(obj runtime.Object, configuration map[string]any) error {
	if untypedObject(obj) {
		return nil
	}
	doc, err := json.Marshal(configuration)
	if err != nil {
		return err
	}
	return json.Unmarshal(doc, reflect.New(reflect.TypeOf(obj).Elem()).Interface())
}

// wholes returns the paths of atomic lists and maps in a value.
func wholes(at fieldpath.Path, s *smd.Schema, ref smd.TypeRef, v value.Value) (found []string) {
	atom, ok := s.Resolve(ref)
	switch {
	case !ok || v == nil || v.IsNull():
	case v.IsMap() && atom.Map != nil:
		if atom.Map.ElementRelationship == smd.Atomic {
			found = append(found, at.String())
		}
		v.AsMap().Iterate(func(name string, field value.Value) bool {
			if f, ok := atom.Map.FindField(name); ok {
				found = append(found, wholes(append(at, fieldpath.PathElement{FieldName: &name}), s, f.Type, field)...)
			}
			return true
		})
	case v.IsList() && atom.List != nil:
		if atom.List.ElementRelationship == smd.Atomic {
			found = append(found, at.String())
		}
		l := v.AsList()
		for i := range l.Length() {
			found = append(found, wholes(append(at, fieldpath.PathElement{Index: &i}), s, atom.List.ElementType, l.At(i))...)
		}
	}
	return found
}
