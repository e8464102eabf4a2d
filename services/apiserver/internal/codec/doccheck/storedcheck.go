package doccheck

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/codec/wire"
)

// StoredMessage describes a protobuf message of a Go type. fields are indexed by field number.
type StoredMessage struct {
	fields []storedField
	// rule checks the message instead of its fields; it may be nil.
	rule func([]byte) error
}

// storedField describes a field of a stored message.
type storedField struct {
	name    string         // in JSON; empty for an embedded message
	wire    int            // wire type, or noField for a number that the type lacks
	list    bool           // a list of numbers, packed or not
	isMap   bool           // a map: values are in map entries
	message *StoredMessage // nil for text, bytes and numbers
}

// storedMessages caches the descriptions of types.
type storedMessages struct {
	mu     sync.Mutex
	byType map[reflect.Type]*StoredMessage
}

// typeOf returns the description of a type.
func (s *storedMessages) typeOf(goType reflect.Type) *StoredMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compile(goType)
}

// compile returns the description of a type. The caller holds mu.
func (s *storedMessages) compile(goType reflect.Type) *StoredMessage {
	if storedMessage := s.byType[goType]; storedMessage != nil {
		return storedMessage
	}
	storedMessage := &StoredMessage{rule: storedRule(goType)}
	s.byType[goType] = storedMessage
	for i := range goType.NumField() {
		structField := goType.Field(i)
		parts := strings.Split(structField.Tag.Get("protobuf"), ",")
		if len(parts) < 3 {
			continue
		}
		number, err := strconv.Atoi(parts[1])
		if err != nil {
			continue
		}
		elemType := structField.Type
		for elemType.Kind() == reflect.Pointer || elemType.Kind() == reflect.Slice || elemType.Kind() == reflect.Map {
			elemType = elemType.Elem()
		}
		field := storedField{wire: wireOf(structField.Type), isMap: structField.Type.Kind() == reflect.Map}
		field.list = parts[2] == "rep" && field.wire != wire.Bytes
		field.name, _, _ = strings.Cut(structField.Tag.Get("json"), ",")
		if elemType.Kind() == reflect.Struct {
			field.message = s.compile(elemType)
		}
		for len(storedMessage.fields) <= number {
			storedMessage.fields = append(storedMessage.fields, storedField{wire: noField})
		}
		storedMessage.fields[number] = field
	}
	return storedMessage
}

// noField is the storedField.wire of a field number that the type lacks.
const noField = -1

// wireOf returns the wire type of a field of a Go type. The Go type decides, because some struct
// tags disagree with the generated code.
func wireOf(goType reflect.Type) int {
	switch goType.Kind() {
	case reflect.Pointer:
		return wireOf(goType.Elem())
	case reflect.Slice:
		if goType.Elem().Kind() == reflect.Uint8 {
			return wire.Bytes
		}
		return wireOf(goType.Elem())
	case reflect.Float64:
		return wire.Fixed64
	case reflect.Float32:
		return wire.Fixed32
	case reflect.Bool,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return wire.Varint
	}
	return wire.Bytes
}

// storedRule returns the check for a stored message, which another server may have written. It
// returns nil if the message's fields are checked one by one.
func storedRule(goType reflect.Type) func([]byte) error {
	switch {
	case goType == quantityType, timeTypes[goType]:
		return messageRule(goType)
	case goType == intStringType:
		return eachField(func(f wire.Field) error {
			if f.Num == 1 && f.Type == wire.Varint && f.Value != uint64(intstr.Int) && f.Value != uint64(intstr.String) {
				return invalidValue("type %d is neither an integer nor a string", f.Value)
			}
			return nil
		})
	case holdsRawJSON(goType):
		return eachRaw(func(document []byte) error {
			if !json.Valid(document) {
				return invalidValue("invalid JSON in %q", shorten(document))
			}
			return CheckStoredJSON(document)
		})
	}
	return nil
}

// checkDepth returns an error for a message that does not decode, or whose JSON clients cannot
// read.
func (m *StoredMessage) checkDepth(data []byte, depth int) error {
	if depth > MaxDepth {
		return errTooDeep
	}
	if m.rule != nil {
		return m.rule(data)
	}
	for len(data) > 0 {
		field, rest, err := wire.Next(data)
		if err != nil {
			return err
		}
		data = rest
		if field.Num >= len(m.fields) || m.fields[field.Num].wire == noField {
			continue
		}
		if err := m.fields[field.Num].checkDepth(field, depth); err != nil {
			return atField(m.fields[field.Num].name, err)
		}
	}
	return nil
}

// checkDepth returns an error if JSON cannot represent a value of the field, or if the wire type
// differs.
func (s *storedField) checkDepth(field wire.Field, depth int) error {
	switch {
	case field.Type != s.wire && !(s.list && field.Type == wire.Bytes):
		return wire.ErrMalformed
	case s.isMap:
		return s.checkEntry(field.Data, depth)
	case s.message != nil:
		return s.message.checkDepth(field.Data, depth+1)
	case s.wire == wire.Fixed64:
		if n := math.Float64frombits(field.Value); math.IsNaN(n) || math.IsInf(n, 0) {
			return invalidValue("%v is not a number of JSON", n)
		}
	}
	return nil
}

// checkEntry checks the values in a map entry.
func (s *storedField) checkEntry(encoded []byte, depth int) error {
	return eachField(func(field wire.Field) error {
		if field.Num != wire.MapValue || s.message == nil {
			return nil
		}
		if field.Type != wire.Bytes {
			return wire.ErrMalformed
		}
		return s.message.checkDepth(field.Data, depth+1)
	})(encoded)
}

// Check returns an error for a message that cannot be served.
func (m *StoredMessage) Check(raw []byte) error { return m.checkDepth(raw, 1) }
