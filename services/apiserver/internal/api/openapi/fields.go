package openapi

import (
	"encoding/json"
	"reflect"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/openapi/typefacts"
)

// fieldSchema returns the schema of a type that a field, an element or a map value has. It adds the
// models of structs.
func (m *models) fieldSchema(t reflect.Type) spec.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		return m.modelRef(t)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return *spec.StrFmtProperty("byte")
		}
		items := m.elementSchema(t.Elem())
		return *spec.ArrayProperty(&items)
	case reflect.Map:
		items := m.elementSchema(t.Elem())
		return *spec.MapProperty(&items)
	case reflect.Bool:
		return *spec.BooleanProperty()
	case reflect.String:
		s := *spec.StringProperty()
		for _, v := range m.enumValues(t) {
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

// elementSchema returns the schema of the elements of a list or map.
func (m *models) elementSchema(t reflect.Type) spec.Schema {
	s := m.fieldSchema(t)
	if m.v3 && m.facts != nil {
		s.Default = zeroDefault(t, false)
	}
	return m.wrapRef(s)
}

// enumValues returns the values of a string type, or nil if any value is allowed.
func (m *models) enumValues(t reflect.Type) []typefacts.Value {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if m.facts == nil || !m.enums || t.Kind() != reflect.String {
		return nil
	}
	return m.facts.Enum(fullName(t))
}

// zeroDefault returns the JSON value of a field that is not set, as the default in its schema. It
// returns nil if such a field is null or omitted. omitted reports whether the field has omitempty.
func zeroDefault(t reflect.Type, omitted bool) any {
	if t.Kind() == reflect.Pointer || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		if t.NumField() == 1 && t.Field(0).Anonymous {
			return zeroDefault(t.Field(0).Type, omitted)
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
