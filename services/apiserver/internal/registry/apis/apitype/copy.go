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
func isFlat(goType reflect.Type) bool {
	switch goType.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return false
	case reflect.Array:
		return isFlat(goType.Elem())
	case reflect.Struct:
		if known, ok := flatTypes.Load(goType); ok {
			return known.(bool)
		}
		result := hasFlatFields(goType)
		flatTypes.Store(goType, result)
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

// copyReferences replaces every reference in value, a shallow copy, by a copy of its target.
func copyReferences(value reflect.Value) {
	if isFlat(value.Type()) {
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for i := 0; i < value.NumField(); i++ {
			if value.Type().Field(i).IsExported() {
				copyReferences(value.Field(i))
			}
		}
	case reflect.Array:
		for i := 0; i < value.Len(); i++ {
			copyReferences(value.Index(i))
		}
	case reflect.Pointer:
		if value.IsNil() || value.Type().Implements(immutableType) {
			return
		}
		copied := reflect.New(value.Type().Elem())
		copied.Elem().Set(value.Elem())
		copyReferences(copied.Elem())
		value.Set(copied)
	case reflect.Slice:
		if value.IsNil() {
			return
		}
		copied := reflect.MakeSlice(value.Type(), value.Len(), value.Len())
		reflect.Copy(copied, value)
		if !isFlat(value.Type().Elem()) {
			for i := 0; i < copied.Len(); i++ {
				copyReferences(copied.Index(i))
			}
		}
		value.Set(copied)
	case reflect.Map:
		if value.IsNil() {
			return
		}
		copied := reflect.MakeMapWithSize(value.Type(), value.Len())
		for it := value.MapRange(); it.Next(); {
			item := addressableCopy(it.Value())
			copyReferences(item)
			copied.SetMapIndex(it.Key(), item)
		}
		value.Set(copied)
	case reflect.Interface:
		if obj, ok := value.Interface().(runtime.Object); ok && !value.IsNil() {
			value.Set(reflect.ValueOf(obj.DeepCopyObject()))
		}
	}
}
