package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"
)

const (
	// MaxMade is how many bytes the elements of a document's lists may take once they
	// are made, without what they refer to: more than any object has that can be stored.
	// A list of structs that grows is copied at one go, and no garbage is collected
	// meanwhile, for which everybody waits.
	MaxMade = 16 << 20
	// fewValues make no large lists.
	fewValues = 1 << 14
)

var errMade = fmt.Errorf("the lists of the document take more than %d bytes", MaxMade)

// shape is what a Go type makes of a value; a nil one makes nothing of it that counts.
type shape struct {
	size   int               // of an element of a list
	elem   *shape            // of a list or map
	fields map[string]*shape // of a struct, by their names in JSON
	object *shape            // of what reads itself, as an object
	leaf   func([]byte) error
}

var unmarshals = reflect.TypeFor[json.Unmarshaler]()

// shapeOf finds the shape of a type. The caller holds mu.
func (s *messages) shapeOf(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if known, ok := s.shapes[t]; ok {
		return known
	}
	out := &shape{}
	if reflect.PointerTo(t).Implements(unmarshals) {
		s.shapes[t] = out
		if t.Kind() == reflect.Struct {
			out.leaf = leafRule(t)
		}
		s.addChoices(out, t)
		return out
	}
	switch t.Kind() {
	case reflect.Slice:
		s.shapes[t] = out
		out.size, out.elem = int(t.Elem().Size()), s.shapeOf(t.Elem())
	case reflect.Map:
		s.shapes[t] = out
		out.elem = s.shapeOf(t.Elem())
	case reflect.Struct:
		s.shapes[t] = out
		out.fields = map[string]*shape{}
		s.addFields(out, t)
	default:
		return nil
	}
	return out
}

func (s *messages) addFields(to *shape, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			s.addFields(to, f.Type)
		case name == "":
			to.fields[f.Name] = s.shapeOf(f.Type)
		default:
			to.fields[name] = s.shapeOf(f.Type)
		}
	}
}

// addChoices adds what a struct that reads itself may make of a value: fields without names
// in JSON stand for the value itself, as an object or a list.
func (s *messages) addChoices(to *shape, t reflect.Type) {
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		inner := s.shapeOf(f.Type)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case inner == nil:
		case name != "":
			if to.fields == nil {
				to.fields = map[string]*shape{}
			}
			to.fields[name] = inner
		case inner.size > 0:
			to.size, to.elem = inner.size, inner.elem
		default:
			to.object = inner
		}
	}
}

func (s *shape) field(name string) *shape {
	switch {
	case s == nil:
		return nil
	case s.fields != nil:
		return s.fields[name]
	case s.object != nil:
		return s.object.field(name)
	}
	return s.elem
}

func (s *shape) element() (*shape, int) {
	if s == nil {
		return nil, 0
	}
	return s.elem, s.size
}

// shapeFor is the shape of the object in a document: of the type that it says, as far as
// it says one.
func (c *Codec) shapeFor(seen, want schema.GroupVersionKind) *shape {
	if seen.Kind != "" {
		want.Kind = seen.Kind
	}
	if seen.Version != "" {
		want.Group, want.Version = seen.Group, seen.Version
	}
	obj, err := c.scheme.New(want)
	if err != nil {
		return nil
	}
	if _, ok := obj.(runtime.Unstructured); ok {
		return nil
	}
	c.messages.mu.Lock()
	defer c.messages.mu.Unlock()
	return c.messages.shapeOf(reflect.TypeOf(obj))
}

// checkJSON is CheckJSON for an object of a type.
func (c *Codec) checkJSON(b []byte, want schema.GroupVersionKind) error {
	values, err := countJSON(b)
	if err != nil || values <= fewValues && !suspect(b) {
		return err
	}
	seen, err := kjson.DefaultMetaFactory.Interpret(b)
	if err != nil {
		return nil // the decoder says it
	}
	return measureJSON(b, c.shapeFor(*seen, want))
}

// measureJSON refuses a document of a shape whose lists would take too much, or that has a
// value that a leaf rule rejects.
func measureJSON(b []byte, s *shape) error {
	m := madeJSON{text: b}
	m.value(0, s)
	if m.size > MaxMade {
		return errMade
	}
	return m.err
}

// madeJSON adds up what is made of a document that is JSON.
type madeJSON struct {
	text []byte
	size int
	err  error // of a leaf rule
}

// value adds the value at a place, and returns where it ends: a negative number when it has
// none, or is too large.
func (m *madeJSON) value(i int, s *shape) int {
	if s != nil && s.leaf != nil {
		begin := m.space(i)
		end := m.value(begin, nil)
		if end > begin {
			if m.err = s.leaf(m.text[begin:end]); m.err != nil {
				return -1
			}
		}
		return end
	}
	switch i = m.space(i); m.at(i) {
	case '{':
		return m.members(i+1, '}', func(i int) int {
			if m.at(i) != '"' {
				return -1
			}
			end := stringEnd(m.text, i+1)
			colon := m.space(end + 1)
			if m.at(colon) != ':' {
				return -1
			}
			name := text(m.text[i : end+1])
			next := m.value(colon+1, s.field(name))
			if m.err != nil {
				m.err = under(name, m.err)
			}
			return next
		})
	case '[':
		elem, size := s.element()
		at := -1
		return m.members(i+1, ']', func(i int) int {
			if m.size += size; m.size > MaxMade {
				return -1
			}
			at++
			next := m.value(i, elem)
			if m.err != nil {
				m.err = under(fmt.Sprintf("[%d]", at), m.err)
			}
			return next
		})
	case '"':
		return stringEnd(m.text, i+1) + 1
	}
	begin := i
	for i < len(m.text) && !strings.ContainsRune(",]} \t\r\n", rune(m.text[i])) {
		i++
	}
	if i == begin {
		return -1
	}
	return i
}

// members has each be read by one, up to the end.
func (m *madeJSON) members(i int, end byte, one func(i int) int) int {
	if i = m.space(i); m.at(i) == end {
		return i + 1
	}
	for {
		if i = one(m.space(i)); i < 0 {
			return i
		}
		switch i = m.space(i); m.at(i) {
		case end:
			return i + 1
		case ',':
			i++
		default:
			return -1
		}
	}
}

func (m *madeJSON) at(i int) byte {
	if i >= len(m.text) {
		return 0
	}
	return m.text[i]
}

func (m *madeJSON) space(i int) int {
	for i < len(m.text) && (m.text[i] == ' ' || m.text[i] == '\t' || m.text[i] == '\r' || m.text[i] == '\n') {
		i++
	}
	return i
}

// text is that of a string in JSON, which may be written in many ways.
func text(quoted []byte) string {
	for _, c := range quoted {
		if c == '\\' {
			var s string
			_ = json.Unmarshal(quoted, &s) // the decoder says that it is none
			return s
		}
	}
	return string(quoted[1 : len(quoted)-1])
}

// checkYAML is CheckYAML for an object of a type. What aliases, merges and tags come to is
// what its JSON has.
func (c *Codec) checkYAML(b []byte, want schema.GroupVersionKind) error {
	values, err := measureYAML(b)
	if err != nil || values <= fewValues && !suspect(b) && bytes.IndexByte(b, '\\') < 0 { // YAML has more escapes than JSON
		return err
	}
	text, err := yaml.YAMLToJSON(b)
	if err != nil {
		return nil // the decoder says it
	}
	return c.checkJSON(text, want)
}

// CheckTree refuses a part of an object of a type, as patches are, whose lists would take
// too much.
func (c *Codec) CheckTree(tree map[string]any, of schema.GroupVersionKind) error {
	size := 0
	return madeTree(tree, c.shapeFor(schema.GroupVersionKind{}, of), &size)
}

// madeTree adds up what is made of a value. It returns an error for more than MaxMade and
// for a value that a leaf rule rejects.
func madeTree(v any, s *shape, size *int) error {
	if s == nil {
		return nil
	}
	if s.leaf != nil {
		value, err := json.Marshal(v)
		if err != nil {
			return nil // the decoder says it
		}
		return s.leaf(value)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if err := madeTree(inner, s.field(name), size); err != nil {
				return under(name, err)
			}
		}
	case []any:
		elem, each := s.element()
		if *size += each * len(v); *size > MaxMade {
			return errMade
		}
		for i, inner := range v {
			if err := madeTree(inner, elem, size); err != nil {
				return under(fmt.Sprintf("[%d]", i), err)
			}
		}
	}
	return nil
}
