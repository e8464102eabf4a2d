package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/codec/wire"
	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// fieldMask selects fields of a message, by number. A nil mask selects the whole field.
type fieldMask map[int]fieldMask

// addPath selects the field at a path of JSON names below a Go type.
func (m fieldMask) addPath(goType reflect.Type, path []string) error {
	for goType.Kind() == reflect.Pointer || goType.Kind() == reflect.Slice {
		goType = goType.Elem()
	}
	if goType.Kind() != reflect.Struct {
		return fmt.Errorf("%s is not a structure", goType)
	}
	var structField reflect.StructField
	for i := range goType.NumField() {
		if name, _, _ := strings.Cut(goType.Field(i).Tag.Get("json"), ","); name == path[0] {
			structField = goType.Field(i)
		}
	}
	if structField.Name == "" {
		return fmt.Errorf("%s has no field %q", goType, path[0])
	}
	tag := strings.Split(structField.Tag.Get("protobuf"), ",")
	if len(tag) < 2 {
		return fmt.Errorf("%s.%s has no protobuf number", goType, structField.Name)
	}
	number, err := strconv.Atoi(tag[1])
	if err != nil {
		return fmt.Errorf("%s.%s: %w", goType, structField.Name, err)
	}
	inner, known := m[number]
	switch {
	case len(path) == 1:
		m[number] = nil
		return nil
	case known && inner == nil:
		return nil // the whole field is already selected
	case !known:
		inner = fieldMask{}
		m[number] = inner
	}
	return inner.addPath(structField.Type, path[1:])
}

// appendMasked appends the selected fields of a message. It omits fields without selected parts.
func (m fieldMask) appendMasked(dst, data []byte) ([]byte, error) {
	for len(data) > 0 {
		field, rest, err := wire.Next(data)
		if err != nil {
			return nil, err
		}
		encoded := data[:len(data)-len(rest)]
		data = rest
		inner, ok := m[field.Num]
		switch {
		case !ok:
			continue
		case inner == nil || field.Type != wire.Bytes:
			dst = append(dst, encoded...)
			continue
		}
		// Reserve the bytes of the old length. The masked message is not longer than the original
		// one, so its length fits into them.
		start := len(dst)
		head := len(encoded) - len(field.Data)
		dst = append(dst, encoded[:head]...)
		if dst, err = inner.appendMasked(dst, field.Data); err != nil {
			return nil, err
		}
		size := len(dst) - start - head
		if size == 0 {
			dst = dst[:start]
			continue
		}
		_, tag := binary.Uvarint(encoded)
		putLength(dst[start+tag:start+head], uint64(size))
	}
	return dst, nil
}

// putLength writes a number as a varint that fills all of data. It pads the varint with zero bits: 5
// in two bytes is 0x85 0x00.
func putLength(data []byte, n uint64) {
	w := binary.PutUvarint(data, n)
	for ; w < len(data); w++ {
		data[w-1] |= 0x80
		data[w] = 0
	}
}

// newFieldMask returns the mask of the given fields with all of their contents. Paths are JSON
// names separated by dots.
func (k *KindCodec) newFieldMask(paths []string) (fieldMask, error) {
	mask := fieldMask{}
	for _, p := range paths {
		if err := mask.addPath(reflect.TypeOf(k.newStored()), strings.Split(p, ".")); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", p, k.Kind.Kind, err)
		}
	}
	return mask, nil
}

// FieldsDecoder returns a function that decodes only the given fields of an object, with all of
// their contents. Paths are JSON names separated by dots. Lists omit elements without selected
// fields.
func (k *KindCodec) FieldsDecoder(paths ...string) (func(Item) (registry.Object, error), error) {
	mask, err := k.newFieldMask(paths)
	if err != nil {
		return nil, err
	}
	return func(item Item) (registry.Object, error) {
		if !k.servedAsStored || !wire.IsEnvelope(item.Stored) {
			return k.DecodeStored(item.Stored, item.Revision)
		}
		obj, err := k.newProtoObject()
		if err != nil {
			return nil, err
		}
		if _, err := k.decodePart(obj, mask, item, nil); err != nil {
			return nil, err
		}
		return obj, nil
	}, nil
}

// protoObject is an object that has a protobuf form.
type protoObject interface {
	registry.Object
	Unmarshal([]byte) error
}

// newProtoObject returns an object of the stored type without fields.
func (k *KindCodec) newProtoObject() (protoObject, error) {
	obj, ok := k.newStored().(protoObject)
	if !ok {
		return nil, fmt.Errorf("%s has no protobuf form", k.Kind.Kind)
	}
	return obj, nil
}

// decodePart decodes the selected part of an object into an empty one. It uses buf as a scratch
// buffer and returns it.
func (k *KindCodec) decodePart(obj protoObject, mask fieldMask, item Item, buf []byte) ([]byte, error) {
	raw, _, _, err := wire.OpenEnvelope(item.Stored)
	if err != nil {
		return buf, err
	}
	masked, err := mask.appendMasked(buf[:0], raw)
	if err != nil {
		return buf, fmt.Errorf("stored %s: %w", k.Kind.Kind, err)
	}
	if err := obj.Unmarshal(masked); err != nil {
		return masked, fmt.Errorf("stored %s: %w", k.Kind.Kind, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	k.completeDecoded(obj, item.Revision)
	return masked, nil
}

// rowObjects is a pool of objects for table rows. A row uses an object only briefly, so the next
// row reuses its memory.
type rowObjects struct {
	mask fieldMask
	pool sync.Pool // of *rowObject
}

// rowObject is an object with the buffer from which it was decoded.
type rowObject struct {
	obj protoObject
	buf []byte
}

// maxRowBuffer is the maximum capacity in bytes of a buffer that is reused. Large objects are rare.
const maxRowBuffer = 64 << 10

// withObject calls use with an object that has only the masked fields. use must not retain it.
func (p *rowObjects) withObject(kindCodec *KindCodec, item Item, use func(registry.Object)) error {
	row, _ := p.pool.Get().(*rowObject)
	var err error
	if row == nil {
		row = &rowObject{}
		if row.obj, err = kindCodec.newProtoObject(); err != nil {
			return err
		}
	}
	if row.buf, err = kindCodec.decodePart(row.obj, p.mask, item, row.buf); err != nil {
		return err
	}
	use(row.obj)
	if clearFields := kindCodec.Kind.Presentation.ClearColumnFields; clearFields != nil && cap(row.buf) <= maxRowBuffer {
		clearFields(row.obj)
		p.pool.Put(row)
	}
	return nil
}

// MissingValue is the value that defaults give a field when a part of its path is missing or null.
type MissingValue struct{ Missing, Null string }

// MissingValues holds the values of fields whose path is incomplete, by stored version and by index
// of the field. Each list has a value for each part of the path. Fields without such a value are
// omitted.
type MissingValues map[string]map[int][]MissingValue

// DocumentAttributes returns a function that reads the attributes of a document with the given
// selectable fields. It omits fields without a value. The error does not state the reason;
// KindCodec.Attributes does.
func DocumentAttributes(fields []registry.SelectableField, absent MissingValues) func(stored []byte) (StoredAttributes, error) {
	f := newDocumentFields(fields)
	return func(stored []byte) (StoredAttributes, error) { return f.attributes(stored, absent) }
}

// attributesOfDocument reads labels and selectable fields as they are stored.
func (k *KindCodec) attributesOfDocument(stored []byte) (StoredAttributes, error) {
	return k.documentFields.attributes(stored, nil)
}

// documentFields holds the selectable fields of a kind's documents as a tree of paths, so that one
// walk over a document finds all of its fields. A kind may have many fields. A document has few of
// them.
type documentFields struct {
	all  []documentField
	root pathNode
}

// documentField is a selectable field of a JSON document.
type documentField struct {
	label string
	path  []string
}

// pathNode is a node in the tree of field paths.
type pathNode struct {
	field    int // index of the field that ends here; negative if none
	children map[string]*pathNode
}

// newDocumentFields returns the tree of selectable fields.
func newDocumentFields(fields []registry.SelectableField) *documentFields {
	selected := &documentFields{root: pathNode{field: -1}}
	for i := range fields {
		field := documentField{fields[i].Label, splitPath(&fields[i])}
		selected.all = append(selected.all, field)
		node := &selected.root
		for _, name := range field.path {
			next := node.children[name]
			if next == nil {
				next = &pathNode{field: -1}
				if node.children == nil {
					node.children = map[string]*pathNode{}
				}
				node.children[name] = next
			}
			node = next
		}
		node.field = i
	}
	return selected
}

// splitPath returns the JSON names on the path of a field, which defaults to its label.
func splitPath(s *registry.SelectableField) []string {
	p := s.Path
	if p == "" {
		p = s.Label
	}
	return strings.Split(strings.TrimPrefix(p, "."), ".")
}

// attributes reads the labels and the selectable fields from a stored document.
func (f *documentFields) attributes(stored []byte, absent MissingValues) (StoredAttributes, error) {
	doc, err := tape.Parse(stored)
	if err != nil {
		return StoredAttributes{}, err
	}
	defer doc.Release()
	var storedAttributes StoredAttributes
	if doc.Kind(tape.Root) != tape.Object {
		return storedAttributes, errors.New("stored value is not a JSON object")
	}
	if metadata := doc.Find(tape.Root, "metadata"); metadata != tape.None && doc.Kind(metadata) == tape.Object {
		storedAttributes.Name = textAt(doc, metadata, "name")
		storedAttributes.Namespace = textAt(doc, metadata, "namespace")
		if l := doc.Find(metadata, "labels"); l != tape.None && doc.Kind(l) == tape.Object {
			for key, end := doc.First(l), doc.Next(l); key < end; key = doc.Next(key + 1) {
				if doc.Kind(key+1) == tape.String && !doc.IsShadowedKey(key) {
					storedAttributes.Labels = append(storedAttributes.Labels, KeyValue{strings.Clone(doc.String(key)), strings.Clone(doc.String(key + 1))})
				}
			}
		}
	}
	storedAttributes.Fields = f.appendValues(doc, tape.Root, &f.root, nil)
	if len(absent) > 0 {
		apiVersion := textAt(doc, tape.Root, "apiVersion")
		for i, parts := range absent[apiVersion[strings.LastIndexByte(apiVersion, '/')+1:]] {
			if text := missingValue(doc, f.all[i].path, parts); text != "" {
				storedAttributes.Fields = append(storedAttributes.Fields, KeyValue{f.all[i].label, text})
			}
		}
	}
	return storedAttributes, nil
}

// appendValues appends the selectable fields at and below a value that are scalars.
func (f *documentFields) appendValues(doc *tape.Doc, value tape.Ref, node *pathNode, into []KeyValue) []KeyValue {
	if node.field >= 0 {
		if text := scalarText(doc, value); text != "" {
			into = append(into, KeyValue{f.all[node.field].label, text})
		}
	}
	if len(node.children) == 0 || doc.Kind(value) != tape.Object {
		return into
	}
	if len(node.children) < doc.Len(value) { // look up the names in the smaller set
		for name, child := range node.children {
			if member := doc.Find(value, name); member != tape.None {
				into = f.appendValues(doc, member, child, into)
			}
		}
		return into
	}
	for key, end := doc.First(value), doc.Next(value); key < end; key = doc.Next(key + 1) {
		if child := node.children[doc.String(key)]; child != nil && !doc.IsShadowedKey(key) {
			into = f.appendValues(doc, key+1, child, into)
		}
	}
	return into
}

// textAt returns a string member of an object, or "" if the object has none.
func textAt(d *tape.Doc, object tape.Ref, name string) string {
	if v := d.Find(object, name); v != tape.None && d.Kind(v) == tape.String {
		return strings.Clone(d.String(v))
	}
	return ""
}

// missingValue returns the value of a field for the first part of its path that a document lacks.
// It returns "" if the document has the whole path.
func missingValue(doc *tape.Doc, path []string, absent []MissingValue) string {
	value := tape.Root
	for i, name := range path {
		if doc.Kind(value) != tape.Object {
			return ""
		}
		value = doc.Find(value, name)
		if value == tape.None {
			return absent[i].Missing
		}
		if doc.Kind(value) == tape.Null {
			return absent[i].Null
		}
	}
	return ""
}

// scalarText returns the text of a scalar, or "" for any other value.
func scalarText(doc *tape.Doc, value tape.Ref) string {
	switch doc.Kind(value) {
	case tape.String:
		return strings.Clone(doc.String(value))
	case tape.True, tape.False, tape.Number:
		return string(doc.Text(value))
	}
	return ""
}
