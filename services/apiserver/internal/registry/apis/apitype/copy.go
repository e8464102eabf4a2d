package apitype

import (
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
)

// Immutable marks types whose values do not change after they are read. Copies share such values.
type Immutable interface{ Immutable() }

var immutableType = reflect.TypeFor[Immutable]()

// DeepCopy returns a copy of the struct that v points to. The copy shares no memory that may be
// written to. DeepCopy of nil returns nil.
func DeepCopy[T any](v *T) *T {
	if v == nil {
		return nil
	}
	out := new(T)
	*out = *v
	copyReferences(reflect.ValueOf(out).Elem())
	return out
}

// flatTypes caches by type whether it holds no references: reflect.Type to bool.
var flatTypes sync.Map

// isFlat reports whether an assignment copies values of a type completely.
func isFlat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return false
	case reflect.Array:
		return isFlat(t.Elem())
	case reflect.Struct:
		if known, ok := flatTypes.Load(t); ok {
			return known.(bool)
		}
		result := hasFlatFields(t)
		flatTypes.Store(t, result)
		return result
	default:
		return true
	}
}

// hasFlatFields reports whether all exported fields of a struct are flat. Unexported data, such as
// the location inside a time, is not changed in place.
func hasFlatFields(t reflect.Type) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.IsExported() && !isFlat(f.Type) {
			return false
		}
	}
	return true
}

// copyReferences replaces every reference in v, a shallow copy, by a copy of its target.
func copyReferences(v reflect.Value) {
	if isFlat(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := 0; i < v.NumField(); i++ {
			if v.Type().Field(i).IsExported() {
				copyReferences(v.Field(i))
			}
		}
	case reflect.Array:
		for i := 0; i < v.Len(); i++ {
			copyReferences(v.Index(i))
		}
	case reflect.Pointer:
		if v.IsNil() || v.Type().Implements(immutableType) {
			return
		}
		c := reflect.New(v.Type().Elem())
		c.Elem().Set(v.Elem())
		copyReferences(c.Elem())
		v.Set(c)
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		if !isFlat(v.Type().Elem()) {
			for i := 0; i < c.Len(); i++ {
				copyReferences(c.Index(i))
			}
		}
		v.Set(c)
	case reflect.Map:
		if v.IsNil() {
			return
		}
		c := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			item := addressableCopy(it.Value())
			copyReferences(item)
			c.SetMapIndex(it.Key(), item)
		}
		v.Set(c)
	case reflect.Interface:
		if obj, ok := v.Interface().(runtime.Object); ok && !v.IsNil() {
			v.Set(reflect.ValueOf(obj.DeepCopyObject()))
		}
	}
}
