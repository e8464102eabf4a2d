package doccheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"

	"binnacle/services/apiserver/internal/json/jsontext"
)

const (
	// MaxListBytes is the maximum size in bytes of the decoded list elements of a document, without
	// the memory that they refer to. No object that can be stored is larger. A growing list of
	// structs is copied in one step. The garbage collector cannot run during the copy, and all
	// requests wait.
	MaxListBytes = 16 << 20
	// maxUncheckedValues is the number of values up to which lists cannot be too large.
	maxUncheckedValues = 1 << 14
)

var errListsTooLarge = fmt.Errorf("the lists of the document take more than %d bytes", MaxListBytes)

// typeShape describes the Go type of a value. A nil shape has no list and no leaf rule.
type typeShape struct {
	size   int                   // size in bytes of a list element; 0 if the type is not a list
	elem   *typeShape            // elements of a list, or values of a map
	fields map[string]*typeShape // fields of a struct, by JSON name
	object *typeShape            // an object in place of a value that the type decodes itself
	leaf   func([]byte) error    // leaf rule for the whole value, see leafRule
}

var unmarshalerType = reflect.TypeFor[json.Unmarshaler]()

// shapeOf returns the shape of a type. The caller holds mu.
func (c *Checker) shapeOf(goType reflect.Type) *typeShape {
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	if known, ok := c.shapes[goType]; ok {
		return known
	}
	out := &typeShape{}
	if reflect.PointerTo(goType).Implements(unmarshalerType) {
		c.shapes[goType] = out
		if goType.Kind() == reflect.Struct {
			out.leaf = leafRule(goType)
		}
		c.addChoices(out, goType)
		return out
	}
	switch goType.Kind() {
	case reflect.Slice:
		c.shapes[goType] = out
		out.size = int(goType.Elem().Size())
		out.elem = c.shapeOf(goType.Elem())
	case reflect.Map:
		c.shapes[goType] = out
		out.elem = c.shapeOf(goType.Elem())
	case reflect.Struct:
		c.shapes[goType] = out
		out.fields = map[string]*typeShape{}
		c.addFields(out, goType)
	default:
		return nil
	}
	return out
}

// addFields adds the fields of a struct to a shape, including those of embedded structs.
func (c *Checker) addFields(to *typeShape, t reflect.Type) {
	for i := range t.NumField() {
		structField := t.Field(i)
		name, _, _ := strings.Cut(structField.Tag.Get("json"), ",")
		switch {
		case name == "-" || !structField.IsExported():
		case name == "" && structField.Anonymous && structField.Type.Kind() == reflect.Struct:
			c.addFields(to, structField.Type)
		case name == "":
			to.fields[structField.Name] = c.shapeOf(structField.Type)
		default:
			to.fields[name] = c.shapeOf(structField.Type)
		}
	}
}

// addChoices adds the shapes into which a self-decoding struct may decode a value. A field without
// a JSON name stands for the value itself, as an object or a list.
func (c *Checker) addChoices(to *typeShape, goType reflect.Type) {
	if goType.Kind() != reflect.Struct {
		return
	}
	for i := range goType.NumField() {
		structField := goType.Field(i)
		if !structField.IsExported() {
			continue
		}
		inner := c.shapeOf(structField.Type)
		name, _, _ := strings.Cut(structField.Tag.Get("json"), ",")
		switch {
		case inner == nil:
		case name != "":
			if to.fields == nil {
				to.fields = map[string]*typeShape{}
			}
			to.fields[name] = inner
		case inner.size > 0:
			to.size = inner.size
			to.elem = inner.elem
		default:
			to.object = inner
		}
	}
}

// fieldShape returns the shape of a member of an object.
func (s *typeShape) fieldShape(name string) *typeShape {
	switch {
	case s == nil:
		return nil
	case s.fields != nil:
		return s.fields[name]
	case s.object != nil:
		return s.object.fieldShape(name)
	}
	return s.elem
}

// elementShape returns the shape of a list's elements and their size in bytes.
func (s *typeShape) elementShape() (*typeShape, int) {
	if s == nil {
		return nil, 0
	}
	return s.elem, s.size
}

// shapeOfKind returns the shape of the object in a document, or nil for an unknown type. seen is
// the type that the document states. expected supplies the parts that it omits.
func (c *Checker) shapeOfKind(seen, expected schema.GroupVersionKind) *typeShape {
	if seen.Kind != "" {
		expected.Kind = seen.Kind
	}
	if seen.Version != "" {
		expected.Group = seen.Group
		expected.Version = seen.Version
	}
	obj, err := c.scheme.New(expected)
	if err != nil {
		return nil
	}
	if _, ok := obj.(runtime.Unstructured); ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shapeOf(reflect.TypeOf(obj))
}

// CheckJSON rejects a JSON object of a type if it exceeds the bounds, if its lists would take too
// much memory, or if it has a value that cannot be served in every encoding.
func (c *Checker) CheckJSON(limits []byte, expected schema.GroupVersionKind) error {
	values, err := countJSON(limits)
	if err != nil || values <= maxUncheckedValues && !mayBreakLeafRule(limits) {
		return err
	}
	seen, err := kjson.DefaultMetaFactory.Interpret(limits)
	if err != nil {
		return nil // the decoder reports it
	}
	return measureJSON(limits, c.shapeOfKind(*seen, expected))
}

// measureJSON rejects a document whose lists would take too much memory, or that has a value that a
// leaf rule rejects.
func measureJSON(b []byte, s *typeShape) error {
	m := listMeasurer{text: b}
	if _, err := m.addValue(jsontext.Space(b, 0), s); !errors.Is(err, jsontext.ErrMalformed) {
		return err
	}
	return nil // the decoder reports it
}

// listMeasurer sums the sizes of the decoded lists of a JSON document.
type listMeasurer struct {
	text []byte
	size int
}

// addValue adds the value at i and returns the index of its end. The error is that of a leaf rule,
// errListsTooLarge or jsontext.ErrMalformed.
func (m *listMeasurer) addValue(i int, shape *typeShape) (end int, err error) {
	switch {
	case shape == nil || i == len(m.text):
		return jsontext.Skip(m.text, i)
	case shape.leaf != nil:
		if end, err = jsontext.Skip(m.text, i); err == nil {
			err = shape.leaf(m.text[i:end])
		}
		return end, err
	case m.text[i] == '{':
		return jsontext.MembersAt(m.text, i, func(name []byte, at int) (int, bool, error) {
			field := jsontext.Name(name)
			end, err := m.addValue(at, shape.fieldShape(field))
			if err != nil {
				err = atField(field, err)
			}
			return end, true, err
		})
	case m.text[i] == '[':
		elem, size := shape.elementShape()
		return jsontext.ElementsAt(m.text, i, func(count, at int) (int, bool, error) {
			m.size += size
			if m.size > MaxListBytes {
				return 0, false, errListsTooLarge
			}
			end, err := m.addValue(at, elem)
			if err != nil {
				err = atField(fmt.Sprintf("[%d]", count), err)
			}
			return end, true, err
		})
	}
	return jsontext.Skip(m.text, i)
}

// CheckYAML checks a YAML object of a type like CheckJSON. It converts the document to JSON to
// measure aliases, merges and tags.
func (c *Checker) CheckYAML(text []byte, expected schema.GroupVersionKind) error {
	values, err := measureYAML(text)
	if err != nil {
		return err
	}
	hasEscapes := bytes.IndexByte(text, '\\') >= 0 // YAML has more escapes than JSON
	if values <= maxUncheckedValues && !mayBreakLeafRule(text) && !hasEscapes {
		return nil
	}
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil // the decoder reports it
	}
	return c.CheckJSON(data, expected)
}

// CheckPart rejects the JSON of a part of an object of a type, such as a patch, whose lists would
// take too much memory, or that has a value that cannot be served in every encoding.
func (c *Checker) CheckPart(data []byte, expected schema.GroupVersionKind) error {
	values, err := countJSON(data)
	if err != nil || values <= maxUncheckedValues && !mayBreakLeafRule(data) {
		return err
	}
	return measureJSON(data, c.shapeOfKind(schema.GroupVersionKind{}, expected))
}

// CheckTree checks a decoded part like CheckPart.
func (c *Checker) CheckTree(tree map[string]any, expected schema.GroupVersionKind) error {
	size := 0
	return measureTree(tree, c.shapeOfKind(schema.GroupVersionKind{}, expected), &size)
}

// measureTree adds the size of a value's lists to size. It returns an error if the sum exceeds
// MaxListBytes or if a leaf rule rejects a value.
func measureTree(content any, shape *typeShape, size *int) error {
	if shape == nil {
		return nil
	}
	if shape.leaf != nil {
		value, err := json.Marshal(content)
		if err != nil {
			return nil // the decoder reports it
		}
		return shape.leaf(value)
	}
	switch content := content.(type) {
	case map[string]any:
		for name, inner := range content {
			if err := measureTree(inner, shape.fieldShape(name), size); err != nil {
				return atField(name, err)
			}
		}
	case []any:
		elem, elementSize := shape.elementShape()
		*size += elementSize * len(content)
		if *size > MaxListBytes {
			return errListsTooLarge
		}
		for i, inner := range content {
			if err := measureTree(inner, elem, size); err != nil {
				return atField(fmt.Sprintf("[%d]", i), err)
			}
		}
	}
	return nil
}

// CheckInto rejects JSON whose lists would take too much memory, or that has a value that the type
// of into cannot have. It skips documents that cannot break a leaf rule.
func (c *Checker) CheckInto(body []byte, into runtime.Object) error {
	if !mayBreakLeafRule(body) {
		return nil
	}
	c.mu.Lock()
	s := c.shapeOf(reflect.TypeOf(into))
	c.mu.Unlock()
	return measureJSON(body, s)
}
