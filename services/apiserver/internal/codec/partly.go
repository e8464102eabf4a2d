package codec

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
)

// mask selects fields of a message, by number. A nil mask selects the whole field.
type mask map[int]mask

// add adds a path of JSON names.
func (m mask) add(t reflect.Type, path []string) error {
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
		inner = mask{}
		m[n] = inner
	}
	return inner.add(f.Type, path[1:])
}

// appendMasked appends the selected parts of a message. It omits messages without selected parts.
func (m mask) appendMasked(dst, b []byte) ([]byte, error) {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return nil, err
		}
		whole := b[:len(b)-len(rest)]
		b = rest
		inner, ok := m[f.num]
		switch {
		case !ok:
			continue
		case inner == nil || f.typ != wireBytes:
			dst = append(dst, whole...)
			continue
		}
		// The length is not known yet. The masked message is not longer than the original one, so
		// its length fits into the bytes of the old length.
		at := len(dst)
		head := len(whole) - len(f.data)
		dst = append(dst, whole[:head]...)
		if dst, err = inner.appendMasked(dst, f.data); err != nil {
			return nil, err
		}
		left := len(dst) - at - head
		if left == 0 {
			dst = dst[:at]
			continue
		}
		_, tag := binary.Uvarint(whole)
		putLength(dst[at+tag:at+head], uint64(left))
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

// masked returns the mask of the given fields with all of their contents. Paths are JSON names
// separated by dots.
func (k *Coder) masked(paths []string) (mask, error) {
	m := mask{}
	for _, p := range paths {
		if err := m.add(reflect.TypeOf(k.newStored()), strings.Split(p, ".")); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", p, k.Decl.Kind, err)
		}
	}
	return m, nil
}

// Partly returns a function that decodes only the given fields of an object, with all of their
// contents. Paths are JSON names separated by dots. Lists omit elements without selected fields.
func (k *Coder) Partly(paths ...string) (func(Item) (registry.Object, error), error) {
	m, err := k.masked(paths)
	if err != nil {
		return nil, err
	}
	return func(it Item) (registry.Object, error) {
		if !k.sameForm || !isEnvelope(it.Stored) {
			return k.DecodeStored(it.Stored, it.Revision)
		}
		obj, err := k.empty()
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

func (k *Coder) empty() (decodable, error) {
	obj, ok := k.newStored().(decodable)
	if !ok {
		return nil, fmt.Errorf("%s has no protobuf form", k.Decl.Kind)
	}
	return obj, nil
}

// decodePart decodes the selected part of an object into an empty one. It uses buf as a scratch
// buffer and returns it.
func (k *Coder) decodePart(obj decodable, m mask, it Item, buf []byte) ([]byte, error) {
	raw, _, _, err := openEnvelope(it.Stored)
	if err != nil {
		return buf, err
	}
	left, err := m.appendMasked(buf[:0], raw)
	if err != nil {
		return buf, fmt.Errorf("stored %s: %w", k.Decl.Kind, err)
	}
	if err := obj.Unmarshal(left); err != nil {
		return left, fmt.Errorf("stored %s: %w", k.Decl.Kind, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if k.Decl.Default != nil {
		k.Decl.Default(obj)
	}
	if k.Decl.Read != nil {
		k.Decl.Read(obj)
	}
	obj.SetResourceVersion(FormatRevision(it.Revision))
	return left, nil
}

// rowObjects is a pool of objects for table rows. A row uses an object only briefly, so the next row
// reuses its memory.
type rowObjects struct {
	mask mask
	pool sync.Pool // of *rowObject
}

// rowObject is an object with the buffer from which it was decoded.
type rowObject struct {
	obj decodable
	buf []byte
}

// maxRowBuffer is the maximum capacity in bytes of a buffer that is reused. Large objects are rare.
const maxRowBuffer = 64 << 10

// at calls f with an object that has only the masked fields. f must not retain it.
func (l *rowObjects) at(k *Coder, it Item, f func(registry.Object)) error {
	v, _ := l.pool.Get().(*rowObject)
	var err error
	if v == nil {
		v = &rowObject{}
		if v.obj, err = k.empty(); err != nil {
			return err
		}
	}
	if v.buf, err = k.decodePart(v.obj, l.mask, it, v.buf); err != nil {
		return err
	}
	f(v.obj)
	if reuse := k.Decl.Presentation.Reuse; reuse != nil && cap(v.buf) <= maxRowBuffer {
		reuse(v.obj)
		l.pool.Put(v)
	}
	return nil
}
