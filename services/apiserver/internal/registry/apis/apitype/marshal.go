package apitype

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"reflect"
	"sort"
)

// Size returns the number of bytes of v's protobuf form. v is a pointer to a struct. The size of a
// type without a protobuf form is 0, and Marshal returns the reason.
func Size(v any) int {
	value, compiled, err := structOf(v)
	if err != nil {
		return 0
	}
	return compiled.size(value)
}

// Marshal returns the protobuf form of the struct that v points to.
func Marshal(v any) ([]byte, error) {
	value, compiled, err := structOf(v)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, compiled.size(value))
	n, err := compiled.marshal(value, buf)
	if err != nil {
		return nil, err
	}
	return buf[len(buf)-n:], nil
}

// MarshalToSizedBuffer writes the protobuf form to the end of buf and returns its size.
func MarshalToSizedBuffer(v any, buf []byte) (int, error) {
	value, compiled, err := structOf(v)
	if err != nil {
		return 0, err
	}
	if compiled.size(value) > len(buf) {
		return 0, io.ErrShortBuffer
	}
	return compiled.marshal(value, buf)
}

// sizeVarint returns the size of a number as a varint.
func sizeVarint(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// tag returns the encoded tag of a field, which precedes its value: the field number shifted by
// three bits, and the wire type.
func (s *step) tag() uint64 { return uint64(s.num)<<3 | uint64(s.elem.form.wireType()) }

// size returns the encoded size of a message in bytes.
func (p *program) size(value reflect.Value) int {
	n := 0
	for i := range p.steps {
		fieldStep := &p.steps[i]
		fieldValue := value.Field(fieldStep.index)
		tag := sizeVarint(uint64(fieldStep.num) << 3)
		switch fieldStep.multiplicity {
		case singleValue:
			if fieldStep.elem.isOmitted(fieldValue) {
				continue
			}
			n += tag + fieldStep.elem.size(fieldValue)
		case pointerValue:
			if !fieldValue.IsNil() {
				n += tag + fieldStep.elem.size(fieldValue.Elem())
			}
		case sliceValue:
			for j := 0; j < fieldValue.Len(); j++ {
				n += tag + fieldStep.elem.size(fieldValue.Index(j))
			}
		case mapValue:
			for it := fieldValue.MapRange(); it.Next(); {
				n += tag + prefixedSize(fieldStep.entrySize(it.Key(), addressableCopy(it.Value())))
			}
		}
	}
	return n
}

// prefixedSize returns the size of n bytes with their length as prefix.
func prefixedSize(n int) int { return sizeVarint(uint64(n)) + n }

// entrySize returns the size of a map entry. An entry is a message with the key in field 1 and the
// value in field 2.
func (s *step) entrySize(key, value reflect.Value) int {
	n := 1 + prefixedSize(key.Len())
	if s.elem.isOmitted(value) {
		return n
	}
	return n + 1 + s.elem.size(value)
}

// isOmitted reports whether a field that is not a pointer is omitted. Only byte strings can be nil.
func (e *element) isOmitted(v reflect.Value) bool { return e.form == formBytes && v.IsNil() }

// addressableCopy copies a map's value so that its methods can be called.
func addressableCopy(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}

// size returns the size of a value, including its length prefix if it has one.
func (e *element) size(value reflect.Value) int {
	switch e.form {
	case formBool:
		return 1
	case formInt:
		return sizeVarint(uint64(value.Int()))
	case formUint:
		return sizeVarint(value.Uint())
	case formDouble:
		return 8
	case formString, formBytes:
		return prefixedSize(value.Len())
	case formStruct:
		return prefixedSize(e.sub.size(value))
	default:
		return prefixedSize(value.Addr().Interface().(message).Size())
	}
}

// writer fills a buffer from its end, so that a length is known when it is written.
type writer struct {
	buf   []byte
	start int // index in buf of the first written byte
}

// writeVarint writes a number in front of what is written.
func (w *writer) writeVarint(v uint64) {
	w.start -= sizeVarint(v)
	binary.PutUvarint(w.buf[w.start:], v)
}

// writeBytes writes a byte string, preceded by its length.
func (w *writer) writeBytes(data []byte) {
	w.start -= len(data)
	copy(w.buf[w.start:], data)
	w.writeVarint(uint64(len(data)))
}

// writeString writes a string, preceded by its length.
func (w *writer) writeString(text string) {
	w.start -= len(text)
	copy(w.buf[w.start:], text)
	w.writeVarint(uint64(len(text)))
}

// marshal encodes a message at the end of buf and returns its size.
func (p *program) marshal(v reflect.Value, buf []byte) (int, error) {
	out := &writer{buf: buf, start: len(buf)}
	if err := p.write(out, v); err != nil {
		return 0, err
	}
	return len(buf) - out.start, nil
}

// write encodes the fields of a message in front of what is written, the last field first.
func (p *program) write(out *writer, value reflect.Value) error {
	for i := len(p.steps) - 1; i >= 0; i-- {
		s := &p.steps[i]
		if err := s.write(out, value.Field(s.index)); err != nil {
			return fmt.Errorf("%s: %w", p.typ.Field(s.index).Name, err)
		}
	}
	return nil
}

// write encodes a field in front of what is written.
func (s *step) write(out *writer, fieldValue reflect.Value) error {
	switch s.multiplicity {
	case singleValue:
		if s.elem.isOmitted(fieldValue) {
			return nil
		}
	case pointerValue:
		if fieldValue.IsNil() {
			return nil
		}
		fieldValue = fieldValue.Elem()
	case sliceValue:
		for j := fieldValue.Len() - 1; j >= 0; j-- {
			if err := s.elem.write(out, fieldValue.Index(j)); err != nil {
				return err
			}
			out.writeVarint(s.tag())
		}
		return nil
	case mapValue:
		return s.writeMap(out, fieldValue)
	}
	if err := s.elem.write(out, fieldValue); err != nil {
		return err
	}
	out.writeVarint(s.tag())
	return nil
}

// writeMap encodes the entries of a map in the order of their keys.
func (s *step) writeMap(out *writer, fieldValue reflect.Value) error {
	keys := fieldValue.MapKeys()
	sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
	for j := len(keys) - 1; j >= 0; j-- {
		end := out.start
		value := addressableCopy(fieldValue.MapIndex(keys[j]))
		if !s.elem.isOmitted(value) {
			if err := s.elem.write(out, value); err != nil {
				return err
			}
			out.writeVarint(2<<3 | uint64(s.elem.form.wireType()))
		}
		out.writeString(keys[j].String())
		out.writeVarint(1<<3 | wireBytes)
		out.writeVarint(uint64(end - out.start))
		out.writeVarint(s.tag())
	}
	return nil
}

// write encodes a single value in front of what is written.
func (e *element) write(out *writer, value reflect.Value) error {
	switch e.form {
	case formBool:
		var b uint64
		if value.Bool() {
			b = 1
		}
		out.writeVarint(b)
	case formInt:
		out.writeVarint(uint64(value.Int()))
	case formUint:
		out.writeVarint(value.Uint())
	case formDouble:
		out.start -= 8
		binary.LittleEndian.PutUint64(out.buf[out.start:], math.Float64bits(value.Float()))
	case formString:
		out.writeString(value.String())
	case formBytes:
		out.writeBytes(value.Bytes())
	case formStruct:
		end := out.start
		if err := e.sub.write(out, value); err != nil {
			return err
		}
		out.writeVarint(uint64(end - out.start))
	case formMessage:
		n, err := value.Addr().Interface().(message).MarshalToSizedBuffer(out.buf[:out.start])
		if err != nil {
			return err
		}
		out.start -= n
		out.writeVarint(uint64(n))
	}
	return nil
}
