package views

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// StructEncodings caches how Go structs are encoded as JSON. It is safe for concurrent use. The
// zero value is empty.
type StructEncodings struct{ cache sync.Map } // of *structEncoding, by reflect.Type

// structEncoding holds the JSON fields of a Go struct, including the fields of inlined structs.
type structEncoding struct {
	fields []field
	byName map[string]int // index in fields by JSON name
}

// field describes how to convert a field of a Go struct for CEL.
type field struct {
	name  string // in JSON
	index []int  // for reflect.Value.FieldByIndex
	// omitEmpty reports whether the field is absent in JSON if it is empty.
	omitEmpty  bool
	conversion conversionMode
}

// conversionMode is how a field is converted. All modes also apply to pointers to the types below.
type conversionMode int

const (
	// byConverter is for types that only the apimachinery converter can convert, such as types with
	// a MarshalJSON method.
	byConverter  conversionMode = iota
	asString                    // string
	asBool                      // bool
	asInt                       // signed integers
	asLazyStruct                // structs without MarshalJSON
	asLazyList                  // slices of such structs
	asStrings                   // []string
	asStringMap                 // map[string]string
)

var marshaler = reflect.TypeFor[json.Marshaler]()

// hasMarshalJSON reports whether a type, or a pointer to it, implements json.Marshaler.
func hasMarshalJSON(t reflect.Type) bool {
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
}

// isPlainStruct reports whether a type is a struct that is encoded field by field.
func isPlainStruct(t reflect.Type) bool { return t.Kind() == reflect.Struct && !hasMarshalJSON(t) }

// forType returns the encoding of a struct type, from the cache if possible.
func (s *StructEncodings) forType(t reflect.Type) *structEncoding {
	if known, ok := s.cache.Load(t); ok {
		return known.(*structEncoding)
	}
	created := &structEncoding{byName: map[string]int{}}
	created.addFields(t, nil)
	s.cache.Store(t, created)
	return created
}

// addFields adds the fields of t, including the fields of inlined structs. parent is the index path
// of t in the struct, as in reflect.Value.FieldByIndex; it is nil for the struct itself. If two
// fields have the same name, the later one wins, as in the apimachinery converter.
func (s *structEncoding) addFields(t reflect.Type, parent []int) {
	for i := range t.NumField() {
		structField := t.Field(i)
		name, options, _ := strings.Cut(structField.Tag.Get("json"), ",")
		index := append(slices.Clone(parent), i)
		switch {
		case name == "-" || !structField.IsExported():
			continue
		case name == "" && isPlainStruct(structField.Type):
			s.addFields(structField.Type, index) // inlined
			continue
		case name == "":
			continue
		}
		s.byName[name] = len(s.fields)
		s.fields = append(s.fields, field{
			name:       name,
			index:      index,
			omitEmpty:  slices.Contains(strings.Split(options, ","), "omitempty"),
			conversion: conversionOf(structField.Type),
		})
	}
}

// conversionOf returns how fields of a type are converted.
func conversionOf(t reflect.Type) conversionMode {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
		if t.Kind() == reflect.Pointer { // a pointer to a pointer
			return byConverter
		}
	}
	if hasMarshalJSON(t) {
		return byConverter
	}
	switch t.Kind() {
	case reflect.String:
		return asString
	case reflect.Bool:
		return asBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return asInt
	case reflect.Struct:
		return asLazyStruct
	case reflect.Slice:
		e := t.Elem()
		switch {
		case isPlainStruct(e):
			return asLazyList
		case e.Kind() == reflect.String && !hasMarshalJSON(e):
			return asStrings
		}
	case reflect.Map:
		if t == reflect.TypeFor[map[string]string]() {
			return asStringMap
		}
	}
	return byConverter
}

// isEmpty reports whether a field with omitempty is absent in JSON if it has the value v.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct:
		return false
	case reflect.Map, reflect.Slice, reflect.Array, reflect.String:
		return v.Len() == 0
	}
	return v.IsZero()
}
