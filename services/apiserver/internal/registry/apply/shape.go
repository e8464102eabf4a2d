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

// valueShape is a Go type with the merge rules of its values, compiled for comparisons. Pointers
// are dereferenced.
type valueShape struct {
	kind shapeKind
	// atomic means that the parts of a value have no owners.
	atomic bool
	fields []fieldShape // of a struct
	elem   *valueShape  // of the values of a map or the elements of a list
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
	*valueShape
}

// keyShape is a field of the key of a list's elements.
type keyShape struct {
	*fieldShape
	defaultValue value.Value // or nil
}

// shapeOf compiles the schema of a kind. It returns nil for objects without a Go type.
func (v *view) shapeOf() *valueShape {
	if untypedObject(v.kind.New()) {
		return nil
	}
	t := v.typed()
	c := &compiler{schema: t.Schema, done: map[shapeKey]*valueShape{}}
	return c.compile(v.goType(), t.TypeRef, false)
}

// shapeKey identifies a shape: a Go type with the merge rules of its schema type.
type shapeKey struct {
	goType   reflect.Type
	name     string
	relation smd.ElementRelationship
	atomic   bool
}

// compiler builds shapes from Go types and a schema. done also holds shapes that are not complete yet,
// because types may be recursive.
type compiler struct {
	schema *smd.Schema
	done   map[shapeKey]*valueShape
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
func (c *compiler) compile(goType reflect.Type, rule smd.TypeRef, atomic bool) *valueShape {
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	key := shapeKey{goType: goType, atomic: atomic}
	if rule.NamedType != nil {
		key.name = *rule.NamedType
	}
	if rule.ElementRelationship != nil {
		key.relation = *rule.ElementRelationship
	}
	cachable := goType.Kind() == reflect.Struct && (atomic || rule.NamedType != nil)
	if shape := c.done[key]; cachable && shape != nil {
		return shape
	}
	shape := &valueShape{}
	if cachable {
		c.done[key] = shape // before its fields: types may be recursive
	}
	atom, known := c.schema.Resolve(rule)
	c.fillShape(shape, goType, rule, atom, atomic || !known)
	return shape
}

// fillShape sets the fields of a shape for a type and its merge rules.
func (c *compiler) fillShape(shape *valueShape, goType reflect.Type, rule smd.TypeRef, atom smd.Atom, atomic bool) {
	shape.atomic = atomic
	switch {
	case encodesItself(goType):
		shape.kind = opaqueShape
		partsHaveOwners := atom.Map != nil && atom.Map.ElementRelationship != smd.Atomic ||
			atom.List != nil && atom.List.ElementRelationship != smd.Atomic
		if !atomic && partsHaveOwners {
			shape.kind = foreignShape
			shape.typed = typed.ParseableType{Schema: c.schema, TypeRef: rule}
		}
		shape.atomic = shape.kind == opaqueShape
	case goType.Kind() == reflect.Struct:
		shape.kind = structShape
		shape.atomic = atomic || atom.Map == nil || atom.Map.ElementRelationship == smd.Atomic
		c.addStructFields(shape, goType, nil, atom.Map)
	case goType.Kind() == reflect.Map:
		shape.kind = mapShape
		shape.atomic = atomic || atom.Map == nil || atom.Map.ElementRelationship == smd.Atomic
		shape.elem = c.compile(goType.Elem(), elementRule(atom.Map, shape.atomic), shape.atomic)
	case goType.Kind() == reflect.Slice && goType.Elem().Kind() != reflect.Uint8:
		shape.kind = listShape
		shape.atomic = atomic || atom.List == nil || atom.List.ElementRelationship != smd.Associative
		var element smd.TypeRef
		if !shape.atomic {
			element = atom.List.ElementType
		}
		shape.elem = c.compile(goType.Elem(), element, shape.atomic)
		if !shape.atomic {
			c.listKeys(shape, atom.List)
		}
	case goType.Kind() == reflect.Interface:
		shape.kind = opaqueShape
		shape.atomic = true
	default:
		shape.kind = scalarShape
		shape.atomic = true
	}
}

// elementRule returns the rule of a map's values. Atomic maps have none.
func elementRule(mapRules *smd.Map, atomic bool) smd.TypeRef {
	if atomic || mapRules == nil {
		return smd.TypeRef{}
	}
	return mapRules.ElementType
}

// addStructFields adds the fields of a struct, and of the structs embedded in it, to shape. parentIndex
// is the index path of an embedded struct, nil for the struct itself.
func (c *compiler) addStructFields(shape *valueShape, t reflect.Type, parentIndex []int, rules *smd.Map) {
	for i := range t.NumField() {
		structField := t.Field(i)
		name, options, _ := strings.Cut(structField.Tag.Get("json"), ",")
		index := append(append([]int(nil), parentIndex...), i)
		switch {
		case name == "-" || !structField.IsExported():
		case name == "" && structField.Anonymous:
			c.addStructFields(shape, structField.Type, index, rules)
		case name != "":
			var rule smd.TypeRef
			if rules != nil {
				rule = rules.ElementType
				if sf, ok := rules.FindField(name); ok {
					rule = sf.Type
				}
			}
			shape.fields = append(shape.fields, fieldShape{
				name:       name,
				index:      index,
				omitEmpty:  strings.Contains(options, "omitempty"),
				valueShape: c.compile(structField.Type, rule, shape.atomic),
			})
		}
	}
}

// listKeys sets the key fields of a list of type map.
func (c *compiler) listKeys(shape *valueShape, list *smd.List) {
	element, _ := c.schema.Resolve(list.ElementType)
	for _, name := range list.Keys {
		for i := range shape.elem.fields {
			if shape.elem.fields[i].name != name {
				continue
			}
			keyField := keyShape{fieldShape: &shape.elem.fields[i]}
			if element.Map != nil {
				if structField, ok := element.Map.FindField(name); ok && structField.Default != nil {
					keyField.defaultValue = value.NewValueInterface(structField.Default)
				}
			}
			shape.keys = append(shape.keys, keyField)
		}
	}
	if len(shape.keys) != len(list.Keys) {
		panic(fmt.Sprintf("a list key is no field of the list elements: %v", list.Keys)) // both come from one definition
	}
}

// valueIn returns the value of the field in a struct, and whether it is present: an empty one may
// be omitted. A null value is present and invalid.
func (f *fieldShape) valueIn(structure reflect.Value) (reflect.Value, bool) {
	value := structure
	for _, i := range f.index {
		value = value.Field(i)
	}
	if f.omitEmpty && isOmittable(value) {
		return reflect.Value{}, false
	}
	return dereference(value), true
}

// dereference follows pointers and interfaces. The result for null, including a nil map or slice,
// is invalid.
func dereference(value reflect.Value) reflect.Value {
	for value.Kind() == reflect.Pointer || value.Kind() == reflect.Interface {
		if value.IsNil() {
			return reflect.Value{}
		}
		value = value.Elem()
	}
	if (value.Kind() == reflect.Map || value.Kind() == reflect.Slice) && value.IsNil() {
		return reflect.Value{}
	}
	return value
}

// isOmittable reports whether omitempty omits a value.
func isOmittable(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.Map, reflect.Slice, reflect.String, reflect.Array:
		return value.Len() == 0
	case reflect.Struct:
		return false
	default:
		return value.IsZero()
	}
}

// pathElement returns the path element that identifies an element of a list.
func (s *valueShape) pathElement(goValue reflect.Value) (fieldpath.PathElement, error) {
	if !goValue.IsValid() {
		return fieldpath.PathElement{}, errors.New("a set or keyed list has a null element")
	}
	if len(s.keys) == 0 {
		x := scalarValue(goValue)
		return fieldpath.PathElement{Value: &x}, nil
	}
	keys := make(value.FieldList, 0, len(s.keys))
	for _, keyField := range s.keys {
		fieldValue, has := keyField.valueIn(goValue)
		switch {
		case has && fieldValue.IsValid():
			keys = append(keys, value.Field{Name: keyField.name, Value: scalarValue(fieldValue)})
		case keyField.defaultValue != nil:
			keys = append(keys, value.Field{Name: keyField.name, Value: keyField.defaultValue})
		default:
			return fieldpath.PathElement{}, fmt.Errorf("list element lacks key field %q", keyField.name)
		}
	}
	keys.Sort()
	return fieldpath.PathElement{Key: &keys}, nil
}

// scalarValue returns a scalar as a value of a path element.
func scalarValue(goValue reflect.Value) value.Value {
	switch {
	case goValue.CanInt():
		return value.NewValueInterface(goValue.Int())
	case goValue.CanUint():
		return value.NewValueInterface(int64(goValue.Uint()))
	case goValue.CanFloat():
		return value.NewValueInterface(goValue.Float())
	case goValue.Kind() == reflect.Bool:
		return value.NewValueInterface(goValue.Bool())
	case goValue.Kind() == reflect.String:
		return value.NewValueInterface(goValue.String())
	}
	return value.NewValueInterface(decodedJSON(goValue))
}
