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

// mask has the fields of a message that are read, by number. A nil one of a field
// stands for all of it.
type mask map[int]mask

// add takes a path of JSON names up.
func (m mask) add(t reflect.Type, path []string) error {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return fmt.Errorf("%s is not a structure", t)
	}
	var f reflect.StructField
	for i := range t.NumField() { // what stands inline is a message of its own
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
		return nil // all of it is read
	case !known:
		inner = mask{}
		m[n] = inner
	}
	return inner.add(f.Type, path[1:])
}

// appendMasked appends what a mask leaves of a message. Messages that nothing is left
// of are left out.
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
		// The length is not known yet; most messages get smaller than what its bytes
		// can tell, so that it fits where it stood before.
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

// putLength writes a number into all of the bytes given, which it does not need all
// of.
func putLength(b []byte, n uint64) {
	w := binary.PutUvarint(b, n)
	for ; w < len(b); w++ {
		b[w-1] |= 0x80
		b[w] = 0
	}
}

// masked returns the mask of fields, given by their JSON names, with dots, and all that is
// in them.
func (k *Coder) masked(paths []string) (mask, error) {
	m := mask{}
	for _, p := range paths {
		if err := m.add(reflect.TypeOf(k.newStored()), strings.Split(p, ".")); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", p, k.Decl.Kind, err)
		}
	}
	return m, nil
}

// Partly returns what decodes objects of which some fields are read, given by their
// JSON names, with dots, and all that is in them. Lists leave out elements of which
// nothing is read.
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

// decodePart decodes what a mask leaves of an object into an empty one, through a buffer, which
// it returns.
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

// looks are objects of which each row of a table looks at one, for a moment: their memory
// serves the next.
type looks struct {
	mask mask
	pool sync.Pool // of *look
}

// look is an object, and the buffer through which it was decoded.
type look struct {
	obj decodable
	buf []byte
}

// maxLook is how large a buffer is kept, in bytes: large objects are few.
const maxLook = 64 << 10

// at has f look at the fields of an object that it reads.
func (l *looks) at(k *Coder, it Item, f func(registry.Object)) error {
	v, _ := l.pool.Get().(*look)
	var err error
	if v == nil {
		v = &look{}
		if v.obj, err = k.empty(); err != nil {
			return err
		}
	}
	if v.buf, err = k.decodePart(v.obj, l.mask, it, v.buf); err != nil {
		return err
	}
	f(v.obj)
	if reuse := k.Decl.Shown.Reuse; reuse != nil && cap(v.buf) <= maxLook {
		reuse(v.obj)
		l.pool.Put(v)
	}
	return nil
}
