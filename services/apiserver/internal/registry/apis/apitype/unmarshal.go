package apitype

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
)

// maxDepth is the maximum nesting depth of messages.
const maxDepth = 10000

var (
	errOverflow = errors.New("protobuf: integer overflow")
	errNumber   = errors.New("protobuf: illegal field number")
	errDepth    = errors.New("protobuf: messages are nested too deeply")
)

// Unmarshal decodes a protobuf form into the struct that v points to. Fields that data lacks keep
// their values. Unknown fields are skipped. v does not share memory with data afterwards.
func Unmarshal(data []byte, v any) error {
	rv, p, err := structOf(v)
	if err != nil {
		return err
	}
	return p.read(data, rv, 0)
}

// value is the content of a field on the wire: num for numbers, raw for bytes.
type value struct {
	field, wire int
	num         uint64
	raw         []byte
}

// readUvarint reads a number and returns it with the remaining bytes.
func readUvarint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	switch {
	case n > 0:
		return v, b[n:], nil
	case n == 0:
		return 0, nil, io.ErrUnexpectedEOF
	default:
		return 0, nil, errOverflow
	}
}

// readValue reads one field: a tag, which holds the field number and, in the lowest three bits, the
// wire type, and then the content. It returns a group as a value of wire type wireStart without
// content.
func readValue(data []byte) (v value, rest []byte, err error) {
	tag, data, err := readUvarint(data)
	if err != nil {
		return v, nil, err
	}
	if tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return v, nil, errNumber
	}
	v.field = int(tag >> 3)
	v.wire = int(tag & 7)
	switch v.wire {
	case wireVarint:
		v.num, data, err = readUvarint(data)
	case wireFixed64:
		if len(data) < 8 {
			return v, nil, io.ErrUnexpectedEOF
		}
		v.num = binary.LittleEndian.Uint64(data)
		data = data[8:]
	case wireFixed32:
		if len(data) < 4 {
			return v, nil, io.ErrUnexpectedEOF
		}
		v.num = uint64(binary.LittleEndian.Uint32(data))
		data = data[4:]
	case wireBytes:
		var n uint64
		if n, data, err = readUvarint(data); err != nil {
			return v, nil, err
		}
		if n > uint64(len(data)) {
			return v, nil, io.ErrUnexpectedEOF
		}
		v.raw = data[:n:n]
		data = data[n:]
	case wireStart:
		data, err = skipGroup(data)
	default:
		err = fmt.Errorf("protobuf: illegal wire type %d", v.wire)
	}
	return v, data, err
}

// skipGroup skips to the end of a group, without recursion.
func skipGroup(data []byte) ([]byte, error) {
	for depth := 1; depth > 0; {
		tag, rest, err := readUvarint(data)
		if err != nil {
			return nil, err
		}
		switch tag & 7 {
		case wireStart:
			depth++
			data = rest
		case wireEnd:
			depth--
			data = rest
		default:
			if _, data, err = readValue(data); err != nil {
				return nil, err
			}
		}
	}
	return data, nil
}

// read decodes the fields of a message.
func (p *program) read(data []byte, into reflect.Value, depth int) error {
	if depth > maxDepth {
		return errDepth
	}
	for len(data) > 0 {
		v, rest, err := readValue(data)
		if err != nil {
			return err
		}
		data = rest
		s := p.byNum[v.field]
		if s == nil {
			continue
		}
		if err := s.read(v, into.Field(s.index), depth); err != nil {
			if errors.Is(err, errDepth) {
				return err
			}
			return fmt.Errorf("%s: %w", p.typ.Field(s.index).Name, err)
		}
	}
	return nil
}

// read decodes one occurrence of a field. A slice gets one more element.
func (s *step) read(v value, f reflect.Value, depth int) error {
	switch s.multiplicity {
	case pointerValue:
		if f.IsNil() {
			f.Set(reflect.New(s.elem.typ))
		}
		return s.elem.read(v, f.Elem(), depth)
	case sliceValue:
		f.Set(reflect.Append(f, reflect.Zero(s.elem.typ)))
		return s.elem.read(v, f.Index(f.Len()-1), depth)
	case mapValue:
		return s.readEntry(v, f, depth)
	default:
		return s.elem.read(v, f, depth)
	}
}

// readEntry decodes an entry of a map.
func (s *step) readEntry(v value, f reflect.Value, depth int) error {
	if v.wire != wireBytes {
		return fmt.Errorf("protobuf: wire type %d in place of a map entry", v.wire)
	}
	key := reflect.New(f.Type().Key()).Elem()
	item := reflect.New(s.elem.typ).Elem()
	for data := v.raw; len(data) > 0; {
		part, rest, err := readValue(data)
		if err != nil {
			return err
		}
		data = rest
		switch part.field {
		case 1:
			if part.wire != wireBytes {
				return fmt.Errorf("protobuf: wire type %d in place of a key", part.wire)
			}
			key.SetString(string(part.raw))
		case 2:
			if err := s.elem.read(part, item, depth); err != nil {
				return err
			}
		}
	}
	if f.IsNil() {
		f.Set(reflect.MakeMap(f.Type()))
	}
	f.SetMapIndex(key, item)
	return nil
}

// read decodes a single value.
func (e *element) read(v value, into reflect.Value, depth int) error {
	if v.wire != e.form.wireType() {
		return fmt.Errorf("protobuf: wire type %d in place of %d", v.wire, e.form.wireType())
	}
	switch e.form {
	case formBool:
		into.SetBool(v.num != 0)
	case formInt:
		if into.Kind() == reflect.Int32 {
			into.SetInt(int64(int32(v.num)))
		} else {
			into.SetInt(int64(v.num))
		}
	case formUint:
		if into.Kind() == reflect.Uint32 {
			into.SetUint(uint64(uint32(v.num)))
		} else {
			into.SetUint(v.num)
		}
	case formDouble:
		into.SetFloat(math.Float64frombits(v.num))
	case formString:
		into.SetString(string(v.raw))
	case formBytes:
		into.SetBytes(append(make([]byte, 0, len(v.raw)), v.raw...))
	case formStruct:
		return e.sub.read(v.raw, into, depth+1)
	case formMessage:
		return into.Addr().Interface().(message).Unmarshal(v.raw)
	}
	return nil
}
