package openapi

import (
	"encoding/json"
	"reflect"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/openapi/typefacts"
)

// value returns the schema of a field's type.
func (m *models) value(t reflect.Type) spec.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		return m.ref(t)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return *spec.StrFmtProperty("byte")
		}
		items := m.element(t.Elem())
		return *spec.ArrayProperty(&items)
	case reflect.Map:
		items := m.element(t.Elem())
		return *spec.MapProperty(&items)
	case reflect.Bool:
		return *spec.BooleanProperty()
	case reflect.String:
		s := *spec.StringProperty()
		for _, v := range m.enum(t) {
			s.Enum = append(s.Enum, v.Text)
		}
		return s
	case reflect.Int64:
		return *spec.Int64Property()
	case reflect.Float32, reflect.Float64:
		return *spec.Float64Property()
	case reflect.Interface:
		return spec.Schema{}
	default:
		return *spec.Int32Property()
	}
}

// element returns the schema of the elements of a list or map.
func (m *models) element(t reflect.Type) spec.Schema {
	s := m.value(t)
	if m.v3 && m.facts != nil {
		s.Default = zero(t, false)
	}
	return m.wrapped(s)
}

// enum returns the values of a string type, or nil if any value is allowed.
func (m *models) enum(t reflect.Type) []typefacts.Value {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if m.facts == nil || !m.enums || t.Kind() != reflect.String {
		return nil
	}
	return m.facts.Enum(fullName(t))
}

// zero returns the JSON value of an unset field, or nil if it is omitted or null.
func zero(t reflect.Type, omitted bool) any {
	if t.Kind() == reflect.Pointer || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		if t.NumField() == 1 && t.Field(0).Anonymous {
			return zero(t.Field(0).Type, omitted)
		}
		return map[string]any{}
	case reflect.Slice, reflect.Array, reflect.Map, reflect.Interface:
		return nil
	}
	if omitted {
		return nil
	}
	return reflect.Zero(t).Interface()
}
