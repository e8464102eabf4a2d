package v1

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"

	"binnacle/services/apiserver/internal/json/tape"
)

// ReadSchema decodes a schema with the result of encoding/json, but several times as fast. It uses
// encoding/json only for JSON that this package would not write.
func ReadSchema(data []byte) (*JSONSchemaProps, error) {
	if s, ok := ReadPlainSchema(data); ok {
		return s, nil
	}
	s := &JSONSchemaProps{}
	return s, json.Unmarshal(data, s)
}

// ReadPlainSchema reads a schema like ReadSchema if it has no unknown or repeated keywords and all
// values have the right types. It returns false for any other schema.
func ReadPlainSchema(data []byte) (*JSONSchemaProps, bool) {
	doc, err := tape.Parse(data)
	if err != nil {
		return nil, false
	}
	defer doc.Release()
	s := &JSONSchemaProps{}
	return s, doc.Clean() && schemaReader{doc}.read(tape.Root, reflect.ValueOf(s).Elem())
}

// member is a field of a struct with its name in JSON.
type member struct {
	name      string
	index     int
	omitEmpty bool
	// structural is false for keywords that no structural schema may have.
	structural bool
}

// membersByType holds the members of the structs in a schema, in the order of the fields.
var membersByType = map[reflect.Type][]member{
	reflect.TypeFor[JSONSchemaProps]():       membersOf(reflect.TypeFor[JSONSchemaProps]()),
	reflect.TypeFor[ValidationRule]():        membersOf(reflect.TypeFor[ValidationRule]()),
	reflect.TypeFor[ExternalDocumentation](): membersOf(reflect.TypeFor[ExternalDocumentation]()),
}

func membersOf(t reflect.Type) (out []member) {
	for i := range t.NumField() {
		name, option, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		structural := !slices.Contains([]string{"id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"}, name)
		out = append(out, member{name, i, option == "omitempty", structural})
	}
	return out
}

// schemaReader fills Go values from a document without repeated keys.
type schemaReader struct{ *tape.Doc }

// read sets into to a value. It returns false for an unusual value: one with another type, or with
// a member that is unknown or not structural.
func (r schemaReader) read(value tape.Ref, into reflect.Value) bool {
	kind := r.Kind(value)
	switch p := into.Addr().Interface().(type) {
	case *JSON:
		if kind != tape.Null {
			p.Raw = bytes.Clone(r.Text(value))
		}
		return true
	case *JSONSchemaPropsOrArray: // a structural schema has no array
		p.Schema = &JSONSchemaProps{}
		return r.read(value, reflect.ValueOf(p.Schema).Elem())
	case *JSONSchemaPropsOrBool:
		p.Allows = kind == tape.Object || kind == tape.True
		if kind != tape.Object {
			return p.Allows || kind == tape.False
		}
		p.Schema = &JSONSchemaProps{}
		return r.read(value, reflect.ValueOf(p.Schema).Elem())
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		return r.read(value, into.Elem())
	case reflect.String:
		if kind == tape.String {
			into.SetString(strings.Clone(r.String(value)))
		}
		return kind == tape.String
	case reflect.Bool:
		into.SetBool(kind == tape.True)
		return kind == tape.True || kind == tape.False
	case reflect.Int64:
		if kind != tape.Number {
			return false
		}
		n, ok := r.Int(value)
		into.SetInt(n)
		return ok
	case reflect.Float64:
		if kind != tape.Number {
			return false
		}
		n := r.Float(value)
		into.SetFloat(n)
		return !math.IsInf(n, 0)
	case reflect.Slice:
		return r.readArray(value, into)
	case reflect.Map:
		return r.readMap(value, into)
	default:
		return r.readStruct(value, into)
	}
}

func (r schemaReader) readArray(value tape.Ref, into reflect.Value) bool {
	if r.Kind(value) != tape.Array {
		return false
	}
	into.Set(reflect.MakeSlice(into.Type(), r.Len(value), r.Len(value)))
	at := r.First(value)
	for i := range into.Len() {
		if !r.read(at, into.Index(i)) {
			return false
		}
		at = r.Next(at)
	}
	return true
}

func (r schemaReader) readMap(value tape.Ref, into reflect.Value) bool {
	if r.Kind(value) != tape.Object {
		return false
	}
	into.Set(reflect.MakeMapWithSize(into.Type(), r.Len(value)))
	element := reflect.New(into.Type().Elem()).Elem() // reused, because schemas are large and the map holds copies
	for key, end := r.First(value), r.Next(value); key < end; key = r.Next(key + 1) {
		element.SetZero()
		if !r.read(key+1, element) {
			return false
		}
		into.SetMapIndex(reflect.ValueOf(strings.Clone(r.String(key))), element)
	}
	return true
}

func (r schemaReader) readStruct(value tape.Ref, into reflect.Value) bool {
	if r.Kind(value) != tape.Object {
		return false
	}
	members := membersByType[into.Type()]
	for key, end := r.First(value), r.Next(value); key < end; key = r.Next(key + 1) {
		i := slices.IndexFunc(members, func(m member) bool { return r.IsText(key, m.name) })
		if i < 0 || !members[i].structural {
			return false
		}
		if r.Kind(key+1) != tape.Null && !r.read(key+1, into.Field(members[i].index)) {
			return false
		}
	}
	return true
}
