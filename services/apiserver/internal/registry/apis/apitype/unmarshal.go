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
	value, compiled, err := structOf(v)
	if err != nil {
		return err
	}
	return compiled.read(data, value, 0)
}

// value is the content of a field on the wire: num for numbers, raw for bytes.
type value struct {
	field, wire int
	num         uint64
	raw         []byte
}

// readUvarint reads a number and returns it with the remaining bytes.
func readUvarint(data []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(data)
	switch {
	case n > 0:
		return v, data[n:], nil
	case n == 0:
		return 0, nil, io.ErrUnexpectedEOF
	default:
		return 0, nil, errOverflow
	}
}

// readValue reads one field: a tag, which holds the field number and, in the lowest three bits, the
// wire type, and then the content. It returns a group as a value of wire type wireStart without
// content.
func readValue(data []byte) (encoded value, rest []byte, err error) {
	tag, data, err := readUvarint(data)
	if err != nil {
		return encoded, nil, err
	}
	if tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return encoded, nil, errNumber
	}
	encoded.field = int(tag >> 3)
	encoded.wire = int(tag & 7)
	switch encoded.wire {
	case wireVarint:
		encoded.num, data, err = readUvarint(data)
	case wireFixed64:
		if len(data) < 8 {
			return encoded, nil, io.ErrUnexpectedEOF
		}
		encoded.num = binary.LittleEndian.Uint64(data)
		data = data[8:]
	case wireFixed32:
		if len(data) < 4 {
			return encoded, nil, io.ErrUnexpectedEOF
		}
		encoded.num = uint64(binary.LittleEndian.Uint32(data))
		data = data[4:]
	case wireBytes:
		var number uint64
		if number, data, err = readUvarint(data); err != nil {
			return encoded, nil, err
		}
		if number > uint64(len(data)) {
			return encoded, nil, io.ErrUnexpectedEOF
		}
		encoded.raw = data[:number:number]
		data = data[number:]
	case wireStart:
		data, err = skipGroup(data)
	default:
		err = fmt.Errorf("protobuf: illegal wire type %d", encoded.wire)
	}
	return encoded, data, err
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
		encoded, rest, err := readValue(data)
		if err != nil {
			return err
		}
		data = rest
		fieldStep := p.byNum[encoded.field]
		if fieldStep == nil {
			continue
		}
		if err := fieldStep.read(encoded, into.Field(fieldStep.index), depth); err != nil {
			if errors.Is(err, errDepth) {
				return err
			}
			return fmt.Errorf("%s: %w", p.typ.Field(fieldStep.index).Name, err)
		}
	}
	return nil
}

// read decodes one occurrence of a field. A slice gets one more element.
func (s *step) read(encoded value, fieldValue reflect.Value, depth int) error {
	switch s.multiplicity {
	case pointerValue:
		if fieldValue.IsNil() {
			fieldValue.Set(reflect.New(s.elem.typ))
		}
		return s.elem.read(encoded, fieldValue.Elem(), depth)
	case sliceValue:
		fieldValue.Set(reflect.Append(fieldValue, reflect.Zero(s.elem.typ)))
		return s.elem.read(encoded, fieldValue.Index(fieldValue.Len()-1), depth)
	case mapValue:
		return s.readEntry(encoded, fieldValue, depth)
	default:
		return s.elem.read(encoded, fieldValue, depth)
	}
}

// readEntry decodes an entry of a map.
func (s *step) readEntry(encoded value, fieldValue reflect.Value, depth int) error {
	if encoded.wire != wireBytes {
		return fmt.Errorf("protobuf: wire type %d in place of a map entry", encoded.wire)
	}
	key := reflect.New(fieldValue.Type().Key()).Elem()
	item := reflect.New(s.elem.typ).Elem()
	for data := encoded.raw; len(data) > 0; {
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
	if fieldValue.IsNil() {
		fieldValue.Set(reflect.MakeMap(fieldValue.Type()))
	}
	fieldValue.SetMapIndex(key, item)
	return nil
}

// read decodes a single value.
func (e *element) read(encoded value, into reflect.Value, depth int) error {
	if encoded.wire != e.form.wireType() {
		return fmt.Errorf("protobuf: wire type %d in place of %d", encoded.wire, e.form.wireType())
	}
	switch e.form {
	case formBool:
		into.SetBool(encoded.num != 0)
	case formInt:
		if into.Kind() == reflect.Int32 {
			into.SetInt(int64(int32(encoded.num)))
		} else {
			into.SetInt(int64(encoded.num))
		}
	case formUint:
		if into.Kind() == reflect.Uint32 {
			into.SetUint(uint64(uint32(encoded.num)))
		} else {
			into.SetUint(encoded.num)
		}
	case formDouble:
		into.SetFloat(math.Float64frombits(encoded.num))
	case formString:
		into.SetString(string(encoded.raw))
	case formBytes:
		into.SetBytes(append(make([]byte, 0, len(encoded.raw)), encoded.raw...))
	case formStruct:
		return e.sub.read(encoded.raw, into, depth+1)
	case formMessage:
		return into.Addr().Interface().(message).Unmarshal(encoded.raw)
	}
	return nil
}
