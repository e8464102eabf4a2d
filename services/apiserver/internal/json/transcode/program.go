package transcode

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// Program writes the JSON of the messages of one Go type. It is immutable except for its pool of
// memos, and safe for concurrent use.
type Program struct {
	root *message
	// meta is the index of the root's metadata, which gets the resourceVersion.
	meta int
	// count is the total number of fields of all messages.
	count int
	memos sync.Pool // of *memoState
}

// message is the program of one message type.
type message struct {
	fields []field // in the order of the Go type
	// byTag[tag] is 1 + the index of the field with that tag (number and wire type), or 0 if there
	// is none.
	byTag    []uint8
	repeated uint64 // set of the fields that are lists and maps
	// ordered is true if the fields are in the order of their numbers and no check applies.
	ordered bool
	// always is the set of fields that are written even if the message lacks them. needed is the
	// set of fields that the message must have with a value other than zero.
	always, needed uint64
	checks         []check
	empty          []byte // JSON of a message without fields
}

// field is one field of a message.
type field struct {
	kind, elem kind
	// always is true if the field is written even with the zero value of its type.
	always bool
	// pointer is true if the Go field is a pointer: defaults do not replace a zero value.
	pointer bool
	// needed: see message.needed.
	needed  bool
	id      int // unique among all fields of the program
	tag     uint64
	name    []byte   // `,"name":`
	absent  []byte   // the name and the value that are written if the message lacks the field
	message *message // of the value, its elements or its map values, if they are messages
}

// kind selects how a value is written. field.elem is the kind of the elements of a list or map.
type kind uint8

const (
	none kind = iota
	text
	boolean
	number32
	number64
	binaryText // bytes, written in base64
	nested     // a message, written as an object
	inline     // a message whose fields are written as those of the outer message
	list
	dictionary
	wrapper // a list of strings that is a message type
	timestamp
	microTimestamp
	duration
	quantity
	intOrString
	embedded // JSON text
	version  // the resourceVersion in ObjectMeta
)

// Wire types.
const (
	wireVarint = 0
	wireBytes  = 2
)

// maxFields is the maximum number of fields of a message. Sets of fields are bits of a word.
const maxFields = 64

// Compile returns the program of a type and of the types that it contains. The type is a struct
// with protobuf and JSON tags and generated methods. Compile returns an error for a type that a
// program cannot express. It ignores rules for types that goType does not contain.
func Compile(goType reflect.Type, rules ...Rule) (*Program, error) {
	builder := compiler{known: map[reflect.Type]*message{}, rules: rules}
	root, err := builder.compileMessage(goType)
	if err != nil {
		return nil, err
	}
	program := &Program{root: root}
	for i := range root.fields {
		if f := &root.fields[i]; f.message != nil && f.message == builder.known[reflect.TypeFor[metav1.ObjectMeta]()] && f.kind == nested {
			program.meta = i
			program.count = builder.count
			return program, nil
		}
	}
	return nil, fmt.Errorf("%s has no metadata", goType)
}

// compiler holds the messages that were compiled for one program.
type compiler struct {
	known map[reflect.Type]*message
	rules []Rule
	count int // of fields
}

// compileMessage returns the program of a struct type.
func (c *compiler) compileMessage(goType reflect.Type) (*message, error) {
	if msg := c.known[goType]; msg != nil {
		return msg, nil
	}
	if goType.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is not a structure", goType)
	}
	msg := &message{}
	c.known[goType] = msg
	names := map[string]int{}
	for i := range goType.NumField() {
		target, err := c.compileField(goType.Field(i))
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", goType, goType.Field(i).Name, err)
		}
		if target == nil {
			continue
		}
		if goType == reflect.TypeFor[metav1.ObjectMeta]() && goType.Field(i).Name == "ResourceVersion" {
			target.kind = version
		}
		names[nameOf(goType.Field(i))] = len(msg.fields)
		msg.fields = append(msg.fields, *target)
	}
	if len(msg.fields) > maxFields {
		return nil, fmt.Errorf("%s has %d fields", goType, len(msg.fields))
	}
	for i := range msg.fields {
		target := &msg.fields[i]
		for uint64(len(msg.byTag)) <= target.tag {
			msg.byTag = append(msg.byTag, 0)
		}
		if msg.byTag[target.tag] != 0 {
			return nil, fmt.Errorf("%s has the field %d twice", goType, target.tag>>3)
		}
		msg.byTag[target.tag] = uint8(i + 1)
		if target.kind == list || target.kind == dictionary {
			msg.repeated |= 1 << i
		}
		if target.absent != nil || target.kind == version {
			msg.always |= 1 << i
		}
		if target.message != nil && target.message.empty == nil && target.absent != nil && (target.kind == nested || target.kind == inline) {
			msg.needed |= 1 << i // defaults might set fields of a missing message
		}
	}
	msg.ordered = slices.IsSortedFunc(msg.fields, func(a, b field) int { return int(a.tag>>3) - int(b.tag>>3) })
	for i := range msg.fields {
		msg.fields[i].id = c.count
		c.count++
	}
	var err error
	if msg.empty, err = json.Marshal(reflect.Zero(goType).Interface()); err != nil {
		return nil, err
	}
	return msg, c.applyRules(msg, goType, names)
}

// nameOf returns the JSON name of a field, or the type name of an inline field.
func nameOf(sf reflect.StructField) string {
	if name, _, _ := strings.Cut(sf.Tag.Get("json"), ","); name != "" {
		return name
	}
	return sf.Name
}

// compileField compiles a field. It returns nil for TypeMeta, which is not stored.
func (c *compiler) compileField(structField reflect.StructField) (*field, error) {
	if structField.Type == reflect.TypeFor[metav1.TypeMeta]() {
		return nil, nil
	}
	name, options, _ := strings.Cut(structField.Tag.Get("json"), ",")
	tag := strings.Split(structField.Tag.Get("protobuf"), ",")
	if name == "-" || tag[0] == "-" || len(tag) < 2 || !structField.IsExported() {
		return nil, errors.New("not in both forms")
	}
	number, err := strconv.Atoi(tag[1])
	if err != nil || number <= 0 || number > 255 {
		return nil, fmt.Errorf("protobuf number %s", tag[1])
	}
	target := &field{}
	wire, err := c.setKind(target, structField.Type)
	if err != nil {
		return nil, err
	}
	if target.kind == wrapper {
		return nil, errors.New("a list that is a message, outside of maps")
	}
	target.tag = uint64(number)<<3 | wire
	if name == "" {
		if !structField.Anonymous || target.kind != nested || structField.Type.Kind() != reflect.Struct {
			return nil, errors.New("inline, and no structure")
		}
		target.kind = inline
		zero, err := json.Marshal(reflect.Zero(structField.Type).Interface())
		if len(zero) > 2 {
			target.absent = append([]byte{','}, zero[1:len(zero)-1]...)
		}
		return target, err
	}
	target.name = append(jsontext.AppendBytes([]byte{','}, []byte(name)), ':')
	target.pointer = structField.Type.Kind() == reflect.Pointer
	omitEmpty := strings.Contains(","+options+",", ",omitempty,")
	target.always = target.pointer || !omitEmpty
	for _, o := range strings.Split(options, ",") {
		if o != "" && o != "omitempty" && o != "inline" {
			return nil, fmt.Errorf("option %s", o)
		}
	}
	if !omitEmpty || structField.Type.Kind() == reflect.Struct {
		zero, err := json.Marshal(reflect.Zero(structField.Type).Interface())
		if err != nil {
			return nil, err
		}
		target.absent = append(target.name[:len(target.name):len(target.name)], zero...)
	}
	return target, nil
}

// setKind sets how target writes values of a Go type, and returns their wire type.
func (c *compiler) setKind(target *field, goType reflect.Type) (wire uint64, err error) {
	if goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	target.kind = specialKind(goType)
	if target.kind != none {
		return wireBytes, nil
	}
	marshals := reflect.PointerTo(goType).Implements(reflect.TypeFor[json.Marshaler]()) ||
		reflect.PointerTo(goType).Implements(reflect.TypeFor[encoding.TextMarshaler]())
	if marshals {
		return 0, fmt.Errorf("%s has a form of its own", goType)
	}
	unmarshals := reflect.PointerTo(goType).Implements(reflect.TypeFor[interface{ Unmarshal([]byte) error }]())
	switch goType.Kind() {
	case reflect.String:
		target.kind = text
	case reflect.Bool:
		target.kind = boolean
		return wireVarint, nil
	case reflect.Int32:
		target.kind = number32
		return wireVarint, nil
	case reflect.Int64:
		target.kind = number64
		return wireVarint, nil
	case reflect.Struct:
		if !unmarshals {
			return 0, fmt.Errorf("%s is not a protobuf message", goType)
		}
		target.kind = nested
		target.message, err = c.compileMessage(goType)
	case reflect.Slice:
		return c.setSliceKind(target, goType, unmarshals)
	case reflect.Map:
		return wireBytes, c.setMapKind(target, goType)
	default:
		err = fmt.Errorf("values of %s", goType)
	}
	return wireBytes, err
}

// setSliceKind sets how target writes a slice: as bytes, as a list of strings that has a message type
// (ExtraValue), or as any other list. It returns the wire type.
func (c *compiler) setSliceKind(target *field, goType reflect.Type, unmarshals bool) (uint64, error) {
	elem := goType.Elem()
	switch {
	case elem.Kind() == reflect.Uint8:
		target.kind = binaryText
		return wireBytes, nil
	case unmarshals && elem.Kind() == reflect.String:
		target.kind = wrapper
		return wireBytes, nil
	case unmarshals || elem.Kind() == reflect.Pointer:
		return 0, fmt.Errorf("lists of type %s", goType)
	}
	element := field{}
	wire, err := c.setKind(&element, elem)
	switch element.kind {
	case list, dictionary, binaryText, wrapper:
		return 0, fmt.Errorf("lists of type %s", goType)
	}
	target.kind = list
	target.elem = element.kind
	target.message = element.message
	return wire, err
}

// setMapKind sets how target writes a map.
func (c *compiler) setMapKind(target *field, goType reflect.Type) error {
	if goType.Key().Kind() != reflect.String || reflect.PointerTo(goType.Key()).Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return fmt.Errorf("keys of %s", goType)
	}
	value := field{}
	wire, err := c.setKind(&value, goType.Elem())
	if err != nil {
		return err
	}
	switch value.kind {
	case list, dictionary:
		return fmt.Errorf("values of %s", goType)
	}
	if wire != wireBytes || goType.Elem().Kind() == reflect.Pointer {
		return fmt.Errorf("values of %s", goType)
	}
	target.kind = dictionary
	target.elem = value.kind
	target.message = value.message
	return nil
}

// specialKind returns the kind of a type with its own JSON form (values.go), or none.
func specialKind(t reflect.Type) kind {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return timestamp
	case reflect.TypeFor[metav1.MicroTime]():
		return microTimestamp
	case reflect.TypeFor[metav1.Duration]():
		return duration
	case reflect.TypeFor[resource.Quantity]():
		return quantity
	case reflect.TypeFor[intstr.IntOrString]():
		return intOrString
	case reflect.TypeFor[metav1.FieldsV1](), reflect.TypeFor[runtime.RawExtension]():
		return embedded
	}
	return none
}
