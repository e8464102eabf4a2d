package v1

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// AppendJSON appends the JSON of the schema as encoding/json writes it, except that it appends
// users' values (defaults, enums and examples) unchanged.
func (s *JSONSchemaProps) AppendJSON(dst []byte) []byte {
	return appendJSON(dst, reflect.ValueOf(s))
}

// appendJSON appends the JSON of a value in a schema. A nil pointer is null.
func appendJSON(dst []byte, value reflect.Value) []byte {
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			return append(dst, jsonNull...)
		}
		return appendJSON(dst, value.Elem())
	case reflect.String:
		return jsontext.AppendString(dst, value.String())
	case reflect.Bool:
		return strconv.AppendBool(dst, value.Bool())
	case reflect.Int64:
		return strconv.AppendInt(dst, value.Int(), 10)
	case reflect.Float64:
		return appendFloat(dst, value.Float())
	case reflect.Slice:
		dst = append(dst, '[')
		for i := range value.Len() {
			dst = appendJSON(appendComma(dst), value.Index(i))
		}
		return append(dst, ']')
	case reflect.Map:
		keys := value.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		dst = append(dst, '{')
		for _, key := range keys {
			dst = appendJSON(appendName(dst, key.String()), value.MapIndex(key))
		}
		return append(dst, '}')
	default:
		return appendStruct(dst, value)
	}
}

func appendStruct(dst []byte, value reflect.Value) []byte {
	switch value.Type() {
	case reflect.TypeFor[JSON]():
		if raw := value.FieldByName("Raw"); raw.Len() > 0 {
			return append(dst, raw.Bytes()...)
		}
		return append(dst, jsonNull...)
	case reflect.TypeFor[JSONSchemaPropsOrArray]():
		return appendListOrSchema(dst, value, "JSONSchemas")
	case reflect.TypeFor[JSONSchemaPropsOrStringArray]():
		return appendListOrSchema(dst, value, "Property")
	case reflect.TypeFor[JSONSchemaPropsOrBool]():
		if schema := value.FieldByName("Schema"); !schema.IsNil() {
			return appendJSON(dst, schema)
		}
		return appendJSON(dst, value.FieldByName("Allows"))
	}
	dst = append(dst, '{')
	for _, m := range membersByType[value.Type()] {
		if f := value.Field(m.index); !m.omitEmpty || !isEmpty(f) {
			dst = appendJSON(appendName(dst, m.name), f)
		}
	}
	return append(dst, '}')
}

// appendListOrSchema appends the list in a field of a union if it is not empty, otherwise the
// schema.
func appendListOrSchema(dst []byte, union reflect.Value, field string) []byte {
	if list := union.FieldByName(field); list.Len() > 0 {
		return appendJSON(dst, list)
	}
	return appendJSON(dst, union.FieldByName("Schema"))
}

// isEmpty reports whether a value is empty by the rules of omitempty in encoding/json.
func isEmpty(value reflect.Value) bool {
	if value.Kind() == reflect.Slice || value.Kind() == reflect.Map {
		return value.Len() == 0
	}
	return value.IsZero()
}

// appendName appends the name of a member, after a comma if it is not the first one.
func appendName(dst []byte, name string) []byte {
	return append(jsontext.AppendString(appendComma(dst), name), ':')
}

// appendComma appends a comma, except at the start of an object or list.
func appendComma(dst []byte) []byte {
	if c := dst[len(dst)-1]; c == '{' || c == '[' {
		return dst
	}
	return append(dst, ',')
}

// appendFloat appends a number as encoding/json writes it. Integers take a shorter path, except for
// zero: encoding/json writes -0 for negative zero, which AppendInt cannot.
func appendFloat(dst []byte, number float64) []byte {
	if number == math.Trunc(number) && math.Abs(number) < 1<<53 && number != 0 {
		return strconv.AppendInt(dst, int64(number), 10)
	}
	data, err := json.Marshal(number)
	if err != nil { // JSON has no number for this value, which did not come from JSON
		data = jsonNull
	}
	return append(dst, data...)
}
