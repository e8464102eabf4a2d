package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v4/schema"
	"sigs.k8s.io/structured-merge-diff/v4/typed"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// shapeKind is how the values of a shape are compared.
type shapeKind uint8

const (
	scalarShape  shapeKind = iota // a JSON scalar
	opaqueShape                   // a type that encodes itself; atomic
	foreignShape                  // a type that encodes itself to a value with merge rules
	structShape
	mapShape
	listShape
)

// fieldSchema is a Go type with the merge rules of its values, compiled for comparisons. Pointers
// are dereferenced.
type fieldSchema struct {
	kind shapeKind
	// atomic means that the parts of a value have no owners.
	atomic bool
	fields []fieldShape // of a struct
	elem   *fieldSchema // of the values of a map or the elements of a list
	// keys identify the elements of a list that is not atomic. Without keys, the list is a set.
	keys []keyShape
	// typed holds the rules of a foreign shape.
	typed typed.ParseableType
}

// fieldShape is a field of a struct. Fields of embedded structs are included.
type fieldShape struct {
	name      string
	index     []int
	omitEmpty bool
	*fieldSchema
}

// keyShape is a field of the key of a list's elements.
type keyShape struct {
	*fieldShape
	defaultValue value.Value // or nil
}

// shapeOf compiles the schema of a kind. It returns nil for objects without a Go type.
func (v *view) shapeOf() *fieldSchema {
	if untypedObject(v.kind.New()) {
		return nil
	}
	t := v.typed()
	c := &compiler{schema: t.Schema, done: map[shapeKey]*fieldSchema{}}
	return c.compile(v.goType(), t.TypeRef, false)
}

// shapeKey identifies a shape: a Go type with the merge rules of its schema type.
type shapeKey struct {
	t        reflect.Type
	name     string
	relation smd.ElementRelationship
	atomic   bool
}

// compiler builds shapes from Go types and a schema. done also holds shapes that are not complete yet,
// because types may be recursive.
type compiler struct {
	schema *smd.Schema
	done   map[shapeKey]*fieldSchema
}

var (
	marshalerType    = reflect.TypeFor[json.Marshaler]()
	unstructuredable = reflect.TypeFor[value.UnstructuredConverter]()
)

// encodesItself reports whether a type, or a pointer to it, has its own JSON encoding.
func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(marshalerType) || p.Implements(unstructuredable)
}

// compile returns the schema of a type under a rule. Atomic values have no rules for their parts.
func (c *compiler) compile(t reflect.Type, rule smd.TypeRef, atomic bool) *fieldSchema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	key := shapeKey{t: t, atomic: atomic}
	if rule.NamedType != nil {
		key.name = *rule.NamedType
	}
	if rule.ElementRelationship != nil {
		key.relation = *rule.ElementRelationship
	}
	cachable := t.Kind() == reflect.Struct && (atomic || rule.NamedType != nil)
	if s := c.done[key]; cachable && s != nil {
		return s
	}
	s := &fieldSchema{}
	if cachable {
		c.done[key] = s // before its fields: types may be recursive
	}
	atom, known := c.schema.Resolve(rule)
	c.fillShape(s, t, rule, atom, atomic || !known)
	return s
}

// fillShape sets the fields of a shape for a type and its merge rules.
func (c *compiler) fillShape(s *fieldSchema, t reflect.Type, rule smd.TypeRef, atom smd.Atom, atomic bool) {
	s.atomic = atomic
	switch {
	case encodesItself(t):
		s.kind = opaqueShape
		partsHaveOwners := atom.Map != nil && atom.Map.ElementRelationship != smd.Atomic ||
			atom.List != nil && atom.List.ElementRelationship != smd.Atomic
		if !atomic && partsHaveOwners {
			s.kind = foreignShape
			s.typed = typed.ParseableType{Schema: c.schema, TypeRef: rule}
		}
		s.atomic = s.kind == opaqueShape
	case t.Kind() == reflect.Struct:
		s.kind = structShape
		s.atomic = atomic || atom.Map == nil || atom.Map.ElementRelationship == smd.Atomic
		c.addStructFields(s, t, nil, atom.Map)
	case t.Kind() == reflect.Map:
		s.kind = mapShape
		s.atomic = atomic || atom.Map == nil || atom.Map.ElementRelationship == smd.Atomic
		s.elem = c.compile(t.Elem(), elementRule(atom.Map, s.atomic), s.atomic)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		s.kind = listShape
		s.atomic = atomic || atom.List == nil || atom.List.ElementRelationship != smd.Associative
		var element smd.TypeRef
		if !s.atomic {
			element = atom.List.ElementType
		}
		s.elem = c.compile(t.Elem(), element, s.atomic)
		if !s.atomic {
			c.listKeys(s, atom.List)
		}
	case t.Kind() == reflect.Interface:
		s.kind = opaqueShape
		s.atomic = true
	default:
		s.kind = scalarShape
		s.atomic = true
	}
}

// elementRule returns the rule of a map's values. Atomic maps have none.
func elementRule(m *smd.Map, atomic bool) smd.TypeRef {
	if atomic || m == nil {
		return smd.TypeRef{}
	}
	return m.ElementType
}

// addStructFields adds the fields of a struct, and of the structs embedded in it, to s. parentIndex is
// the index path of an embedded struct, nil for s itself.
func (c *compiler) addStructFields(s *fieldSchema, t reflect.Type, parentIndex []int, rules *smd.Map) {
	for i := range t.NumField() {
		structField := t.Field(i)
		name, options, _ := strings.Cut(structField.Tag.Get("json"), ",")
		index := append(append([]int(nil), parentIndex...), i)
		switch {
		case name == "-" || !structField.IsExported():
		case name == "" && structField.Anonymous:
			c.addStructFields(s, structField.Type, index, rules)
		case name != "":
			var rule smd.TypeRef
			if rules != nil {
				rule = rules.ElementType
				if sf, ok := rules.FindField(name); ok {
					rule = sf.Type
				}
			}
			s.fields = append(s.fields, fieldShape{
				name:        name,
				index:       index,
				omitEmpty:   strings.Contains(options, "omitempty"),
				fieldSchema: c.compile(structField.Type, rule, s.atomic),
			})
		}
	}
}

// listKeys sets the key fields of a list of type map.
func (c *compiler) listKeys(s *fieldSchema, list *smd.List) {
	element, _ := c.schema.Resolve(list.ElementType)
	for _, name := range list.Keys {
		for i := range s.elem.fields {
			if s.elem.fields[i].name != name {
				continue
			}
			k := keyShape{fieldShape: &s.elem.fields[i]}
			if element.Map != nil {
				if sf, ok := element.Map.FindField(name); ok && sf.Default != nil {
					k.defaultValue = value.NewValueInterface(sf.Default)
				}
			}
			s.keys = append(s.keys, k)
		}
	}
	if len(s.keys) != len(list.Keys) {
		panic(fmt.Sprintf("a list key is no field of the list elements: %v", list.Keys)) // both come from one definition
	}
}

// valueIn returns the value of the field in a struct, and whether it is present: an empty one may
// be omitted. A null value is present and invalid.
func (f *fieldShape) valueIn(structure reflect.Value) (reflect.Value, bool) {
	v := structure
	for _, i := range f.index {
		v = v.Field(i)
	}
	if f.omitEmpty && isOmittable(v) {
		return reflect.Value{}, false
	}
	return dereference(v), true
}

// dereference follows pointers and interfaces. The result for null, including a nil map or slice,
// is invalid.
func dereference(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return reflect.Value{}
		}
		v = v.Elem()
	}
	if (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.IsNil() {
		return reflect.Value{}
	}
	return v
}

// isOmittable reports whether omitempty omits a value.
func isOmittable(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}

// pathElement returns the path element that identifies an element of a list.
func (s *fieldSchema) pathElement(v reflect.Value) (fieldpath.PathElement, error) {
	if !v.IsValid() {
		return fieldpath.PathElement{}, errors.New("a set or keyed list has a null element")
	}
	if len(s.keys) == 0 {
		x := scalarValue(v)
		return fieldpath.PathElement{Value: &x}, nil
	}
	keys := make(value.FieldList, 0, len(s.keys))
	for _, k := range s.keys {
		f, has := k.valueIn(v)
		switch {
		case has && f.IsValid():
			keys = append(keys, value.Field{Name: k.name, Value: scalarValue(f)})
		case k.defaultValue != nil:
			keys = append(keys, value.Field{Name: k.name, Value: k.defaultValue})
		default:
			return fieldpath.PathElement{}, fmt.Errorf("list element lacks key field %q", k.name)
		}
	}
	keys.Sort()
	return fieldpath.PathElement{Key: &keys}, nil
}

// scalarValue returns a scalar as a value of a path element.
func scalarValue(v reflect.Value) value.Value {
	switch {
	case v.CanInt():
		return value.NewValueInterface(v.Int())
	case v.CanUint():
		return value.NewValueInterface(int64(v.Uint()))
	case v.CanFloat():
		return value.NewValueInterface(v.Float())
	case v.Kind() == reflect.Bool:
		return value.NewValueInterface(v.Bool())
	case v.Kind() == reflect.String:
		return value.NewValueInterface(v.String())
	}
	return value.NewValueInterface(decodedJSON(v))
}
