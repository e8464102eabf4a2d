package doccheck

import (
	"reflect"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec/wire"
	"binnacle/services/apiserver/internal/json/jsontext"
)

// message describes the contents of a Go type's protobuf message, by field number.
type message struct {
	fields map[int]messageField
	// lists is the set of fields that are lists or maps, but not of messages.
	lists map[int]bool
	// texts and numbers hold the fields with text and with floating-point numbers.
	texts   map[int]textField
	numbers map[int]string
	// rule checks the whole message instead of its fields. It may be nil.
	rule func([]byte) error
	// isRaw is true for a message that holds a JSON document.
	isRaw bool
}

// messageField describes a field of a protobuf message.
type messageField struct {
	name    string
	message *message
	// isMap is true for a map whose values are messages.
	isMap bool
	// size is the size of a list element in bytes; 0 if the field is not a list.
	size int
}

// Checker checks documents of the types of a scheme. It keeps the descriptions of the types.
type Checker struct {
	scheme *runtime.Scheme

	mu       sync.Mutex
	messages map[reflect.Type]*message
	shapes   map[reflect.Type]*typeShape

	stored storedMessages
}

// New returns a checker. Without a scheme it checks only documents whose type the caller
// states.
func New(scheme *runtime.Scheme) *Checker {
	return &Checker{
		scheme:   scheme,
		messages: map[reflect.Type]*message{},
		shapes:   map[reflect.Type]*typeShape{},
		stored:   storedMessages{byType: map[reflect.Type]*StoredMessage{}},
	}
}

// StoredType returns the description of a type of stored messages.
func (c *Checker) StoredType(t reflect.Type) *StoredMessage { return c.stored.typeOf(t) }

// messageOf returns the message of a type, or nil for a type without fields. The caller holds mu.
func (c *Checker) messageOf(goType reflect.Type) *message {
	for goType.Kind() == reflect.Pointer || goType.Kind() == reflect.Slice {
		goType = goType.Elem()
	}
	if goType.Kind() != reflect.Struct {
		return nil
	}
	if messageRules := c.messages[goType]; messageRules != nil {
		return messageRules
	}
	messageRules := &message{
		fields:  map[int]messageField{},
		lists:   map[int]bool{},
		texts:   map[int]textField{},
		numbers: map[int]string{},
		rule:    messageRule(goType),
		isRaw:   holdsRawJSON(goType),
	}
	c.messages[goType] = messageRules
	for i := range goType.NumField() {
		structField := goType.Field(i)
		parts := strings.Split(structField.Tag.Get("protobuf"), ",")
		if len(parts) < 3 || parts[0] != "bytes" && parts[0] != "fixed64" {
			continue
		}
		number, err := strconv.Atoi(parts[1])
		if err != nil {
			continue
		}
		name, _, _ := strings.Cut(structField.Tag.Get("json"), ",")
		if isFloat(structField.Type) {
			messageRules.numbers[number] = name
			continue
		}
		if text, ok := newTextField(name, structField.Type); ok {
			messageRules.texts[number] = text
		}
		elemType := structField.Type
		if elemType.Kind() == reflect.Map {
			elemType = elemType.Elem()
		}
		if inner := c.messageOf(elemType); inner != nil {
			field := messageField{name: name, message: inner, isMap: structField.Type.Kind() == reflect.Map}
			if structField.Type.Kind() == reflect.Slice {
				field.size = int(elemType.Elem().Size())
			}
			messageRules.fields[number] = field
		} else {
			messageRules.lists[number] = parts[2] == "rep"
		}
	}
	return messageRules
}

// CheckProtobuf rejects a protobuf object that exceeds the bounds or is malformed. Some decoders
// accept a malformed message that this check cannot read, and would see other values.
func (c *Checker) CheckProtobuf(body []byte, expected schema.GroupVersionKind) error {
	_, err := c.measureProtobuf(body, expected)
	return err
}

// Values returns the approximate number of values of a protobuf body. The type is the one that the
// body names, or else expected. Values returns 0 for other media types, whose text shows the number
// of values, and for a body that will be rejected.
func (c *Checker) Values(media string, body []byte, expected schema.GroupVersionKind) int {
	if media != api.MediaProtobuf {
		return 0
	}
	size, err := c.measureProtobuf(body, expected)
	if err != nil {
		return 0
	}
	return int(max(size.values, size.containers))
}

// measureProtobuf measures the objects that a protobuf body decodes to.
func (c *Checker) measureProtobuf(body []byte, want schema.GroupVersionKind) (size nodeSize, err error) {
	raw, apiVersion, kind, err := wire.OpenEnvelope(body)
	if err == nil {
		gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
		if gvk.Kind == "" {
			gvk.Kind = want.Kind
		}
		if gvk.Version == "" {
			gvk.Group = want.Group
			gvk.Version = want.Version
		}
		var obj runtime.Object
		if obj, err = c.scheme.New(gvk); err != nil {
			return nodeSize{}, nil // the decoder reports it
		}
		size, err = c.measureMessage(raw, obj)
	}
	if !wire.IsEnvelope(body) {
		return size, nil // the decoder rejects it
	}
	return size, err
}

// CheckMessage rejects a protobuf message of a Go type that exceeds the bounds.
func (c *Checker) CheckMessage(raw []byte, object runtime.Object) error {
	_, err := c.measureMessage(raw, object)
	return err
}

// CheckStorable rejects a protobuf message of a Go type that cannot be served in every encoding. It
// limits the depth, but not the size: the server adds managedFields to objects of any accepted size.
func (c *Checker) CheckStorable(raw []byte, object runtime.Object) error {
	return c.messageFor(object).check(raw, &measurement{stored: true})
}

// measureMessage measures a message of a Go type. It returns an error if it exceeds the bounds.
func (c *Checker) measureMessage(raw []byte, object runtime.Object) (nodeSize, error) {
	var total measurement
	err := c.messageFor(object).check(raw, &total)
	return total.nodeSize, err
}

// messageFor returns the message of an object's type.
func (c *Checker) messageFor(object runtime.Object) *message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.messageOf(reflect.TypeOf(object))
}

// measurement is the size of a message as far as it has been checked. depth is the current depth.
type measurement struct {
	nodeSize
	// stored is set for a message to store or from the store, which only depth bounds.
	stored bool
}

// exceeded returns an error if the size exceeds a bound.
func (m *measurement) exceeded() error {
	switch {
	case m.depth > MaxDepth:
		return errTooDeep
	case m.stored:
		return nil
	case m.containers > MaxContainers:
		return errTooManyContainers
	case m.values > MaxValues:
		return errTooManyValues
	case m.size > MaxListBytes:
		return errListsTooLarge
	}
	return nil
}

// addRaw adds the JSON document of a message at the current depth. The message is the outermost
// level of the document.
func (m *measurement) addRaw(document []byte) error {
	if m.stored {
		return CheckStoredJSON(document)
	}
	size := jsontext.Measure(document)
	m.values += int64(size.Commas) + 1
	m.containers += int64(size.Containers)
	switch {
	case m.depth-1+int64(size.Depth) > MaxDepth:
		return asValueError(errTooDeep)
	case size.Key > MaxKey:
		return asValueError(errKeyTooLong)
	}
	return m.exceeded()
}

// MessageValues returns the approximate number of values of a message of a Go type, and MaxValues
// for one that exceeds the bounds.
func (c *Checker) MessageValues(raw []byte, object runtime.Object) int {
	size, err := c.measureMessage(raw, object)
	if err != nil {
		return MaxValues
	}
	return int(max(size.values, size.containers))
}

// check checks a message and adds its size to total.
func (m *message) check(data []byte, total *measurement) error {
	total.depth++
	defer func() { total.depth-- }()
	total.containers++
	if err := total.exceeded(); err != nil {
		return err
	}
	if m.isRaw {
		return eachRaw(func(document []byte) error {
			if err := total.addRaw(document); err != nil {
				return err
			}
			return checkRaw(document)
		})(data)
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
		if m.lists[field.Num] {
			total.values++
			if err := total.exceeded(); err != nil {
				return err
			}
		}
		if err := m.checkLeaf(field); err != nil {
			return err
		}
		inner, ok := m.fields[field.Num]
		if !ok || field.Type != wire.Bytes {
			continue
		}
		total.size += int64(inner.size)
		if err := total.exceeded(); err != nil {
			return err
		}
		check := inner.message.check
		if inner.isMap {
			check = inner.message.checkEntry
		}
		if err := check(field.Data, total); err != nil {
			return atField(inner.name, err)
		}
	}
	return nil
}

// checkLeaf checks a field that is not a message.
func (m *message) checkLeaf(field wire.Field) error {
	switch field.Type {
	case wire.Bytes:
		if text, ok := m.texts[field.Num]; ok {
			if err := text.check(field.Data); err != nil {
				return atField(text.name, err)
			}
		}
	case wire.Fixed64:
		if name, ok := m.numbers[field.Num]; ok {
			if err := checkNumber(field.Value); err != nil {
				return atField(name, err)
			}
		}
	}
	return nil
}

// checkEntry checks a map entry whose value is the message m. An entry may contain several values,
// which some decoders merge into one.
func (m *message) checkEntry(encoded []byte, total *measurement) error {
	values := 0
	for len(encoded) > 0 {
		field, rest, err := wire.Next(encoded)
		if err != nil {
			return err
		}
		encoded = rest
		if field.Num != wire.MapValue {
			continue
		}
		if field.Type != wire.Bytes { // some decoders ignore the wire type
			return wire.ErrMalformed
		}
		values++
		if err := m.check(field.Data, total); err != nil {
			return err
		}
	}
	if values == 0 {
		return m.check(nil, total)
	}
	return nil
}
