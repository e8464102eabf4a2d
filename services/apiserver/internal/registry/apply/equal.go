package apply

import (
	"bytes"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/registry"
)

// Equal reports whether two objects of the kind are equal, except for managedFields. An empty list or
// map equals an absent one.
func (m *Manager) Equal(a, b registry.Object) bool {
	shape := m.shape()
	if shape == nil {
		if documentsClearlyDiffer(a, b) {
			return false
		}
		ch, err := m.typedDifferences(a, b)
		return err == nil && ch.set.Difference(unownedFields).Empty() && ch.removed.Difference(unownedFields).Empty()
	}
	x := reflect.ValueOf(a).Elem()
	y := reflect.ValueOf(b).Elem()
	for i := range shape.fields {
		field := &shape.fields[i]
		if field.name == "metadata" {
			if !equalMeta(field, x, y) {
				return false
			}
			continue
		}
		if !equalField(field, x, y, nullEqualsEmpty) {
			return false
		}
	}
	return true
}

// equalMeta compares metadata, except for managedFields.
func equalMeta(field *fieldShape, a, b reflect.Value) bool {
	x, _ := field.valueIn(a)
	y, _ := field.valueIn(b)
	for i := range field.fields {
		if g := &field.fields[i]; g.name != "managedFields" && !equalField(g, x, y, nullEqualsEmpty) {
			return false
		}
	}
	return true
}

// equalField compares a field of two structs.
func equalField(field *fieldShape, a, b reflect.Value, how nullComparison) bool {
	x, hasX := field.valueIn(a)
	y, hasY := field.valueIn(b)
	return hasX == hasY && (!hasX || equal(field.valueShape, x, y, how))
}

// nullComparison determines how null compares with empty values.
type nullComparison bool

const (
	// nullEqualsNull: null equals only null, as in JSON.
	nullEqualsNull nullComparison = true
	// nullEqualsEmpty: null equals an empty list or map, as in the stored form.
	nullEqualsEmpty nullComparison = false
)

// equal reports whether two values have equal JSON.
func equal(shape *valueShape, a, b reflect.Value, how nullComparison) bool {
	if !a.IsValid() || !b.IsValid() {
		bothEmpty := (shape.kind == mapShape || shape.kind == listShape) && shape.isEmpty(a) && shape.isEmpty(b)
		return a.IsValid() == b.IsValid() || how == nullEqualsEmpty && bothEmpty
	}
	switch shape.kind {
	case scalarShape:
		return equalScalars(a, b)
	case opaqueShape, foreignShape:
		return equalOpaque(a, b)
	case structShape:
		for i := range shape.fields {
			if !equalField(&shape.fields[i], a, b, how) {
				return false
			}
		}
	case mapShape:
		if a.Len() != b.Len() {
			return false
		}
		if a.UnsafePointer() == b.UnsafePointer() {
			return true // a copy of an object shares unchanged maps
		}
		for it := a.MapRange(); it.Next(); {
			other := b.MapIndex(it.Key())
			if !other.IsValid() || !equal(shape.elem, dereference(it.Value()), dereference(other), how) {
				return false
			}
		}
	case listShape:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !equal(shape.elem, dereference(a.Index(i)), dereference(b.Index(i)), how) {
				return false
			}
		}
	}
	return true
}

// equalScalars reports whether two values of a scalar type are equal.
func equalScalars(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.String:
		return a.String() == b.String()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	case reflect.Slice:
		return bytes.Equal(a.Bytes(), b.Bytes())
	case reflect.Float32, reflect.Float64:
		return a.Float() == b.Float()
	}
	if a.CanUint() {
		return a.Uint() == b.Uint()
	}
	return a.Int() == b.Int()
}

// equalOpaque reports whether two values that encode themselves have equal JSON.
func equalOpaque(a, b reflect.Value) bool {
	if a.CanAddr() && b.CanAddr() {
		return equalPointees(a.Addr().Interface(), b.Addr().Interface()) || reflect.DeepEqual(decodedJSON(a), decodedJSON(b))
	}
	if a.Type() == quantities && b.Type() == quantities { // map values are not addressable
		x := a.Interface().(resource.Quantity)
		y := b.Interface().(resource.Quantity)
		return equalPointees(&x, &y) || reflect.DeepEqual(decodedJSON(a), decodedJSON(b))
	}
	return reflect.DeepEqual(a.Interface(), b.Interface()) || reflect.DeepEqual(decodedJSON(a), decodedJSON(b))
}

var quantities = reflect.TypeFor[resource.Quantity]()

// equalPointees reports whether two pointers point to equal values. For the usual types it avoids
// reflect.DeepEqual, which costs more than all other fields of an object.
func equalPointees(a, b any) bool {
	same := false
	switch p := a.(type) {
	case *metav1.Time:
		same = samePointer(p, b)
	case *metav1.MicroTime:
		same = samePointer(p, b)
	case *intstr.IntOrString:
		same = samePointer(p, b)
	case *resource.Quantity:
		same = samePointer(p, b)
	}
	return same || reflect.DeepEqual(a, b)
}

// samePointer reports whether b is a pointer to the same value as a.
func samePointer[T comparable](a *T, b any) bool {
	p, ok := b.(*T)
	return ok && *a == *p
}

// decodedJSON returns the JSON of a value that encodes itself, decoded to maps, lists and scalars.
// An error is returned as its text.
func decodedJSON(v reflect.Value) (out any) {
	data, err := json.Marshal(pointerTo(v).Interface())
	if err != nil {
		return err.Error()
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return err.Error()
	}
	return out
}

// pointerTo returns a pointer to a value or to a copy of it, because methods may have a pointer
// receiver.
func pointerTo(value reflect.Value) reflect.Value {
	if value.CanAddr() {
		return value.Addr()
	}
	p := reflect.New(value.Type())
	p.Elem().Set(value)
	return p
}
