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

// structEncoding holds the fields of a struct, including those of inlined structs.
type structEncoding struct {
	fields []field
	byName map[string]int
}

// field describes how CEL reads a field of a Go struct.
type field struct {
	name  string
	index []int
	// omitEmpty states that the field is omitted if it is empty.
	omitEmpty  bool
	conversion conversionMode
}

// conversionMode selects the conversion of a value.
type conversionMode int

const (
	// byConverter means that only the apimachinery converter can convert the field.
	byConverter conversionMode = iota
	asString
	asBool
	asInt
	asStructure
	asStructures // list of structs
	asStrings
	asStringMap
)

var marshaler = reflect.TypeFor[json.Marshaler]()

// marshals reports whether a type encodes itself.
func marshals(t reflect.Type) bool {
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
}

// byFields reports whether a struct is encoded field by field.
func byFields(t reflect.Type) bool { return t.Kind() == reflect.Struct && !marshals(t) }

// forType returns the encoding of a struct.
func (s *StructEncodings) forType(t reflect.Type) *structEncoding {
	if known, ok := s.cache.Load(t); ok {
		return known.(*structEncoding)
	}
	created := &structEncoding{byName: map[string]int{}}
	created.add(t, nil)
	s.cache.Store(t, created)
	return created
}

// add adds the fields of t, including those of inlined structs. parent is the index of t in the
// struct as in reflect.Value.FieldByIndex; nil for the struct itself. If two fields have the same
// name, the later one wins, as in the apimachinery converter.
func (s *structEncoding) add(t reflect.Type, parent []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(slices.Clone(parent), i)
		switch {
		case name == "-" || !f.IsExported():
			continue
		case name == "" && byFields(f.Type):
			s.add(f.Type, index)
			continue
		case name == "":
			continue
		}
		s.byName[name] = len(s.fields)
		s.fields = append(s.fields, field{name, index, slices.Contains(strings.Split(options, ","), "omitempty"), conversionOf(f.Type)})
	}
}

func conversionOf(t reflect.Type) conversionMode {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
		if t.Kind() == reflect.Pointer { // a pointer to a pointer
			return byConverter
		}
	}
	if marshals(t) {
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
		return asStructure
	case reflect.Slice:
		e := t.Elem()
		switch {
		case byFields(e):
			return asStructures
		case e.Kind() == reflect.String && !marshals(e):
			return asStrings
		}
	case reflect.Map:
		if t == reflect.TypeFor[map[string]string]() {
			return asStringMap
		}
	}
	return byConverter
}

// isEmpty reports whether omitempty omits a value.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct:
		return false
	case reflect.Map, reflect.Slice, reflect.Array, reflect.String:
		return v.Len() == 0
	}
	return v.IsZero()
}
