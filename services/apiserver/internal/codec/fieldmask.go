package codec

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/codec/wire"
	"binnacle/services/apiserver/internal/registry"
)

// fieldMask selects fields of a message, by number. A nil mask selects the whole field.
type fieldMask map[int]fieldMask

// add adds a path of JSON names.
func (m fieldMask) add(t reflect.Type, path []string) error {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return fmt.Errorf("%s is not a structure", t)
	}
	var f reflect.StructField
	for i := range t.NumField() { // an inline field is a message of its own
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name == path[0] {
			f = t.Field(i)
		}
	}
	if f.Name == "" {
		return fmt.Errorf("%s has no field %q", t, path[0])
	}
	tag := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(tag) < 2 {
		return fmt.Errorf("%s.%s has no protobuf number", t, f.Name)
	}
	n, err := strconv.Atoi(tag[1])
	if err != nil {
		return fmt.Errorf("%s.%s: %w", t, f.Name, err)
	}
	inner, known := m[n]
	switch {
	case len(path) == 1:
		m[n] = nil
		return nil
	case known && inner == nil:
		return nil // the whole field is already selected
	case !known:
		inner = fieldMask{}
		m[n] = inner
	}
	return inner.add(f.Type, path[1:])
}

// appendMasked appends the selected fields of a message. It omits fields without selected parts.
func (m fieldMask) appendMasked(dst, b []byte) ([]byte, error) {
	for len(b) > 0 {
		f, rest, err := wire.Next(b)
		if err != nil {
			return nil, err
		}
		encoded := b[:len(b)-len(rest)]
		b = rest
		inner, ok := m[f.Num]
		switch {
		case !ok:
			continue
		case inner == nil || f.Type != wire.Bytes:
			dst = append(dst, encoded...)
			continue
		}
		// The length is not known yet. The masked message is not longer than the original one, so
		// its length fits into the bytes of the old length.
		start := len(dst)
		head := len(encoded) - len(f.Data)
		dst = append(dst, encoded[:head]...)
		if dst, err = inner.appendMasked(dst, f.Data); err != nil {
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

// putLength writes a number as a varint that fills all of b.
func putLength(b []byte, n uint64) {
	w := binary.PutUvarint(b, n)
	for ; w < len(b); w++ {
		b[w-1] |= 0x80
		b[w] = 0
	}
}

// newFieldMask returns the mask of the given fields with all of their contents. Paths are JSON names
// separated by dots.
func (k *KindCodec) newFieldMask(paths []string) (fieldMask, error) {
	m := fieldMask{}
	for _, p := range paths {
		if err := m.add(reflect.TypeOf(k.newStored()), strings.Split(p, ".")); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", p, k.Kind.Kind, err)
		}
	}
	return m, nil
}

// FieldsDecoder returns a function that decodes only the given fields of an object, with all of their
// contents. Paths are JSON names separated by dots. Lists omit elements without selected fields.
func (k *KindCodec) FieldsDecoder(paths ...string) (func(Item) (registry.Object, error), error) {
	m, err := k.newFieldMask(paths)
	if err != nil {
		return nil, err
	}
	return func(it Item) (registry.Object, error) {
		if !k.servedAsStored || !wire.IsEnvelope(it.Stored) {
			return k.DecodeStored(it.Stored, it.Revision)
		}
		obj, err := k.newProtoObject()
		if err != nil {
			return nil, err
		}
		if _, err := k.decodePart(obj, m, it, nil); err != nil {
			return nil, err
		}
		return obj, nil
	}, nil
}

// decodable is an object that has a protobuf form.
type decodable interface {
	registry.Object
	Unmarshal([]byte) error
}

// newProtoObject returns an object of the stored type without fields.
func (k *KindCodec) newProtoObject() (decodable, error) {
	obj, ok := k.newStored().(decodable)
	if !ok {
		return nil, fmt.Errorf("%s has no protobuf form", k.Kind.Kind)
	}
	return obj, nil
}

// decodePart decodes the selected part of an object into an empty one. It uses buf as a scratch
// buffer and returns it.
func (k *KindCodec) decodePart(obj decodable, m fieldMask, it Item, buf []byte) ([]byte, error) {
	raw, _, _, err := wire.OpenEnvelope(it.Stored)
	if err != nil {
		return buf, err
	}
	masked, err := m.appendMasked(buf[:0], raw)
	if err != nil {
		return buf, fmt.Errorf("stored %s: %w", k.Kind.Kind, err)
	}
	if err := obj.Unmarshal(masked); err != nil {
		return masked, fmt.Errorf("stored %s: %w", k.Kind.Kind, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if k.Kind.Default != nil {
		k.Kind.Default(obj)
	}
	if k.Kind.AfterDecode != nil {
		k.Kind.AfterDecode(obj)
	}
	obj.SetResourceVersion(FormatRevision(it.Revision))
	return masked, nil
}

// rowObjects is a pool of objects for table rows. A row uses an object
// only briefly, so the next row reuses its memory.
type rowObjects struct {
	mask fieldMask
	pool sync.Pool // of *rowObject
}

// rowObject is an object with the buffer from which it was decoded.
type rowObject struct {
	obj decodable
	buf []byte
}

// maxRowBuffer is the maximum capacity in bytes of a buffer that is reused. Large objects are rare.
const maxRowBuffer = 64 << 10

// withObject calls f with an object that has only the masked fields. f must not retain it.
func (l *rowObjects) withObject(k *KindCodec, it Item, f func(registry.Object)) error {
	row, _ := l.pool.Get().(*rowObject)
	var err error
	if row == nil {
		row = &rowObject{}
		if row.obj, err = k.newProtoObject(); err != nil {
			return err
		}
	}
	if row.buf, err = k.decodePart(row.obj, l.mask, it, row.buf); err != nil {
		return err
	}
	f(row.obj)
	if reuse := k.Kind.Presentation.ClearColumnFields; reuse != nil && cap(row.buf) <= maxRowBuffer {
		reuse(row.obj)
		l.pool.Put(row)
	}
	return nil
}
