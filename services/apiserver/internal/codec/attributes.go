package codec

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/codec/wire"
	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// StoredAttributes holds the parts of a stored value that selectors match on. The watch cache keeps
// them as attributes.Attributes, which shares keys between objects.
type StoredAttributes struct {
	Namespace, Name string
	// Labels holds the labels in the order of the stored form.
	Labels []KeyValue
	// Fields holds the selectable fields in the order of their declaration, without metadata.name
	// and metadata.namespace. For custom resources, it omits the fields that the object lacks.
	Fields []KeyValue
}

// KeyValue is a label or a field with its value.
type KeyValue struct{ Key, Value string }

// ordinaryLabels is the initial capacity of StoredAttributes.Labels. Few objects have more labels.
const ordinaryLabels = 8

// viewString returns a part of a stored value as a string that shares its memory.
func viewString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// fieldProgram reads one selectable field from the wire form.
type fieldProgram struct {
	label string
	path  []int // field numbers from the object down
	kind  reflect.Kind
	// compute, if set, returns the value from the decoded object. Then path is empty.
	compute func(registry.Object) string
}

// compileFields resolves the dotted JSON paths of a kind's selectable fields to protobuf field
// numbers of its stored type.
func compileFields(kind *registry.Kind, stored reflect.Type) ([]fieldProgram, error) {
	var out []fieldProgram
	for _, selectable := range kind.Presentation.Selectable {
		fields := fieldProgram{label: selectable.Label, compute: selectable.Value}
		if selectable.Value == nil {
			path := selectable.Path
			if path == "" {
				path = selectable.Label
			}
			var err error
			if fields.path, fields.kind, err = resolveFieldPath(stored, strings.Split(path, ".")); err != nil {
				return nil, fmt.Errorf("selectable field %s of %s: %w", selectable.Label, kind.GVK(), err)
			}
		}
		out = append(out, fields)
	}
	return out, nil
}

// resolveFieldPath returns the protobuf field numbers of a path of JSON names, and the kind of its
// value.
func resolveFieldPath(goType reflect.Type, path []string) ([]int, reflect.Kind, error) {
	var numbers []int
	for _, name := range path {
		for goType.Kind() == reflect.Pointer {
			goType = goType.Elem()
		}
		if goType.Kind() != reflect.Struct {
			return nil, 0, fmt.Errorf("%s is not a structure", goType)
		}
		structField, ok := fieldByJSON(goType, name)
		if !ok {
			return nil, 0, fmt.Errorf("%s has no field %q", goType, name)
		}
		tag := strings.Split(structField.Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			return nil, 0, fmt.Errorf("%s.%s has no protobuf number", goType, structField.Name)
		}
		n, err := strconv.Atoi(tag[1])
		if err != nil {
			return nil, 0, fmt.Errorf("%s.%s: %w", goType, structField.Name, err)
		}
		numbers = append(numbers, n)
		goType = structField.Type
	}
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	switch goType.Kind() {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Int:
		return numbers, goType.Kind(), nil
	}
	return nil, 0, fmt.Errorf("%s cannot be selected by", goType)
}

// fieldByJSON returns the field of a struct with a JSON name, also from inline structs.
func fieldByJSON(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		structField := t.Field(i)
		tag, opts, _ := strings.Cut(structField.Tag.Get("json"), ",")
		if tag == name {
			return structField, true
		}
		if tag == "" && strings.Contains(opts, "inline") {
			if in, ok := fieldByJSON(structField.Type, name); ok {
				return in, true
			}
		}
	}
	return reflect.StructField{}, false
}

// zeroValue returns the field's value when the wire form omits it.
func (p *fieldProgram) zeroValue() string {
	switch p.kind {
	case reflect.Bool:
		return "false"
	case reflect.String:
		return ""
	}
	return "0"
}

// formatValue returns the value of a field on the wire as selectors see it.
func (p *fieldProgram) formatValue(field wire.Field) string {
	switch p.kind {
	case reflect.String:
		return viewString(field.Data)
	case reflect.Bool:
		return strconv.FormatBool(field.Value != 0)
	default:
		return strconv.FormatInt(int64(field.Value), 10)
	}
}

// fieldTree holds the paths of all selectable fields below a message. One walk over the message
// reads all of them.
type fieldTree []fieldBranch

// fieldBranch is a node in the tree of selectable fields.
type fieldBranch struct {
	number     int
	fieldIndex int // index of the selectable field, if children is nil
	children   fieldTree
}

// newFieldTree returns the tree of all fields that are read by their path. Two selectable fields may
// end at the same field number, so leaves are never shared.
func newFieldTree(fields []fieldProgram) (root fieldTree) {
	for i := range fields {
		level := &root
		for j, number := range fields[i].path {
			last := j == len(fields[i].path)-1
			index := slices.IndexFunc(*level, func(b fieldBranch) bool { return b.number == number && !last && b.children != nil })
			if index < 0 {
				index = len(*level)
				*level = append(*level, fieldBranch{number: number, fieldIndex: i})
				if !last {
					(*level)[index].children = fieldTree{}
				}
			}
			level = &(*level)[index].children
		}
	}
	return root
}

// readValues sets the values of the fields that are present. The last occurrence of a field wins.
func (t fieldTree) readValues(message []byte, fields []fieldProgram, values []KeyValue) error {
	for data := message; len(data) > 0; {
		field, rest, err := wire.Next(data)
		if err != nil {
			return err
		}
		data = rest
		for i := range t {
			branch := &t[i]
			switch {
			case branch.number != field.Num:
			case branch.children == nil:
				values[branch.fieldIndex].Value = fields[branch.fieldIndex].formatValue(field)
			default:
				if err := branch.children.readValues(field.Data, fields, values); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Attributes reads labels and selectable fields of a stored value. It does not decode a protobuf
// value unless a field needs a function. Labels and fields may share memory with the value and are
// valid as long as it does not change. The error is an *UndecodableError.
func (c *KindCodec) Attributes(stored []byte) (StoredAttributes, error) {
	a, err := c.attributes(stored)
	if err != nil {
		return a, &UndecodableError{c.whyUndecodable(stored, err)}
	}
	return a, nil
}

// attributes reads like Attributes. It returns the error without the wording of Kubernetes.
func (c *KindCodec) attributes(stored []byte) (StoredAttributes, error) {
	if !wire.IsEnvelope(stored) {
		if err := doccheck.CheckStoredJSON(stored); err != nil {
			return StoredAttributes{}, err
		}
	}
	if c.Kind.Document != nil {
		return c.attributesOfDocument(stored)
	}
	if !wire.IsEnvelope(stored) {
		return c.attributesOfJSON(stored)
	}
	raw, _, kind, err := wire.OpenEnvelope(stored)
	if err != nil {
		return StoredAttributes{}, err
	}
	if kind != c.Kind.StoredGVK().Kind {
		return StoredAttributes{}, errOtherKind
	}
	meta, err := wire.Find(raw, wire.ObjectMetadata)
	if err != nil {
		return StoredAttributes{}, err
	}
	storedAttributes, err := attributesOfMetadata(meta)
	if err != nil {
		return storedAttributes, err
	}
	if err := c.checkServable(raw); err != nil {
		return storedAttributes, err
	}
	if len(c.fields) == 0 {
		return storedAttributes, nil
	}
	storedAttributes.Fields = make([]KeyValue, 0, len(c.fields))
	var obj registry.Object
	for i := range c.fields {
		fields := &c.fields[i]
		value := fields.zeroValue()
		if fields.compute != nil {
			if obj == nil {
				if obj, err = c.decodeAsStored(stored); err != nil {
					return storedAttributes, err
				}
			}
			value = fields.compute(obj)
		}
		storedAttributes.Fields = append(storedAttributes.Fields, KeyValue{fields.label, value})
	}
	return storedAttributes, c.fieldTree.readValues(raw, c.fields, storedAttributes.Fields)
}

// attributesOfMetadata reads name, namespace and labels from an ObjectMeta in protobuf.
func attributesOfMetadata(meta []byte) (storedAttributes StoredAttributes, err error) {
	for data := meta; len(data) > 0; {
		field, rest, err := wire.Next(data)
		if err != nil {
			return storedAttributes, fmt.Errorf("metadata: %w", err)
		}
		data = rest
		switch field.Num {
		case wire.MetaName:
			storedAttributes.Name = string(field.Data)
		case wire.MetaNamespace:
			storedAttributes.Namespace = string(field.Data)
		case wire.MetaLabels:
			key, err := wire.Find(field.Data, wire.MapKey)
			if err != nil {
				return storedAttributes, err
			}
			value, err := wire.Find(field.Data, wire.MapValue)
			if err != nil {
				return storedAttributes, err
			}
			if storedAttributes.Labels == nil {
				storedAttributes.Labels = make([]KeyValue, 0, ordinaryLabels)
			}
			storedAttributes.Labels = append(storedAttributes.Labels, KeyValue{viewString(key), viewString(value)})
		}
	}
	return storedAttributes, nil
}

// attributesOfJSON reads the attributes of a value that is stored as JSON.
func (c *KindCodec) attributesOfJSON(stored []byte) (StoredAttributes, error) {
	storedAttributes, kind, err := readHead(stored)
	if err != nil {
		return StoredAttributes{}, fmt.Errorf("stored value is neither protobuf nor JSON: %w", err)
	}
	if kind != c.Kind.StoredGVK().Kind {
		return StoredAttributes{}, errOtherKind
	}
	if c.Kind.Stored.JSON && len(c.fields) == 0 {
		return storedAttributes, nil
	}
	obj, err := c.decodeAsStored(stored)
	if err != nil || len(c.fields) == 0 {
		return storedAttributes, err
	}
	// The field numbers of the selectable fields apply only to the protobuf form.
	proto, err := c.encodeProtobuf(obj)
	if err != nil {
		return storedAttributes, err
	}
	fromProtobuf, err := c.attributes(proto)
	storedAttributes.Fields = fromProtobuf.Fields
	return storedAttributes, err
}

// readHead reads the kind, name, namespace and labels of an object from its JSON without decoding
// the rest.
func readHead(stored []byte) (storedAttributes StoredAttributes, kind string, err error) {
	doc, err := tape.Parse(stored)
	if err != nil {
		return storedAttributes, "", err
	}
	defer doc.Release()
	text := func(object tape.Ref, name string) (text string) {
		value := doc.Find(object, name)
		switch {
		case value == tape.None || doc.Kind(value) == tape.Null:
		case doc.Kind(value) == tape.String:
			text = strings.Clone(doc.String(value))
		default:
			err = fmt.Errorf("%s is not a string", name)
		}
		return text
	}
	object := func(within tape.Ref, name string) tape.Ref {
		value := doc.Find(within, name)
		switch {
		case value == tape.None || doc.Kind(value) == tape.Null:
			return tape.None
		case doc.Kind(value) != tape.Object:
			err = fmt.Errorf("%s is not an object", name)
			return tape.None
		}
		return value
	}
	if doc.Kind(tape.Root) != tape.Object {
		return storedAttributes, "", errors.New("it is not an object")
	}
	kind = text(tape.Root, "kind")
	if metadata := object(tape.Root, "metadata"); metadata != tape.None {
		storedAttributes.Name = text(metadata, "name")
		storedAttributes.Namespace = text(metadata, "namespace")
		if l := object(metadata, "labels"); l != tape.None {
			for key, end := doc.First(l), doc.Next(l); key < end; key = doc.Next(key + 1) {
				if !doc.IsShadowedKey(key) { // of equal keys, the last one applies
					name := strings.Clone(doc.String(key))
					storedAttributes.Labels = append(storedAttributes.Labels, KeyValue{name, text(l, name)})
				}
			}
		}
	}
	return storedAttributes, kind, err
}
