package views

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Shapes remembers how the structures of Go are written as JSON. One is shared by many
// requests; the zero value knows none yet.
type Shapes struct{ known sync.Map } // of *shape, by reflect.Type

// shape is the fields of a structure, those of structures that are inlined among them.
type shape struct {
	fields []field
	byName map[string]int
}

type field struct {
	name  string
	index []int
	// omitted tells that the field is left out when it is empty.
	omitted bool
	turn    turning
}

// turning says how a value is turned.
type turning int

const (
	// byConverter leaves it to the converter of the field's library.
	byConverter turning = iota
	asString
	asBool
	asInt
	asStructure
	asStructures // a list of them
	asStrings
	asTexts // a map of them
)

var marshaler = reflect.TypeFor[json.Marshaler]()

// marshals tells of a type that is written by itself.
func marshals(t reflect.Type) bool {
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
}

// byFields tells of a structure that is written field by field.
func byFields(t reflect.Type) bool { return t.Kind() == reflect.Struct && !marshals(t) }

// of is the shape of a structure.
func (s *Shapes) of(t reflect.Type) *shape {
	if known, ok := s.known.Load(t); ok {
		return known.(*shape)
	}
	made := &shape{byName: map[string]int{}}
	made.add(t, nil)
	s.known.Store(t, made)
	return made
}

// add the fields of a type that stands at an index of the structure. Of two fields of a
// name the later one counts, as with the converter.
func (s *shape) add(t reflect.Type, at []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(slices.Clone(at), i)
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
		s.fields = append(s.fields, field{name, index, slices.Contains(strings.Split(options, ","), "omitempty"), turningOf(f.Type)})
	}
}

func turningOf(t reflect.Type) turning {
	if t.Kind() == reflect.Pointer {
		if t = t.Elem(); t.Kind() == reflect.Pointer {
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
		switch e := t.Elem(); {
		case byFields(e):
			return asStructures
		case e.Kind() == reflect.String && !marshals(e):
			return asStrings
		}
	case reflect.Map:
		if t == reflect.TypeFor[map[string]string]() {
			return asTexts
		}
	}
	return byConverter
}

// isEmpty tells of a value that is left out where that is wanted.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct:
		return false
	case reflect.Map, reflect.Slice, reflect.Array, reflect.String:
		return v.Len() == 0
	}
	return v.IsZero()
}
