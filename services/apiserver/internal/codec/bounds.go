package codec

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yaml "sigs.k8s.io/yaml/goyaml.v3"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/json/jsontext"
)

// Bounds of a document that a client sends, in addition to its length. Each list and object costs
// memory when it is read, compared, owned and printed. Each level above a value costs time.
const (
	// MaxDepth is the maximum nesting depth.
	MaxDepth = 500
	// MaxContainers is the maximum number of lists and objects, or of protobuf messages.
	MaxContainers = 1 << 17
	// MaxValues is the maximum number of values.
	MaxValues = 1 << 18
	// MaxKey is the maximum length of a field name in bytes. Each error below the field repeats its
	// name.
	MaxKey = 64 << 10
	// MaxExpanded is the maximum size in bytes of a YAML document with its aliases expanded.
	MaxExpanded = 3 << 20
)

var (
	errDeep       = fmt.Errorf("the document is nested more than %d levels deep", MaxDepth)
	errContainers = fmt.Errorf("the document has more than %d lists and objects", MaxContainers)
	errValues     = fmt.Errorf("the document has more than %d values", MaxValues)
	errKey        = fmt.Errorf("the document has a field name of more than %d bytes", MaxKey)
	errAliases    = fmt.Errorf("the aliases of the document expand to more than %d bytes", MaxExpanded)
)

// CheckJSON rejects a JSON document that exceeds the bounds. It does not check that the document is
// valid JSON. The decoder does that.
func CheckJSON(b []byte) error {
	_, err := countJSON(b)
	return err
}

// countJSON is CheckJSON that also returns the approximate number of values.
func countJSON(b []byte) (values int, err error) {
	size := jsontext.Measure(b)
	values = size.Commas + 1
	switch {
	case size.Depth > MaxDepth:
		return values, errDeep
	case size.Containers > MaxContainers:
		return values, errContainers
	case values > MaxValues:
		return values, errValues
	case size.Key > MaxKey:
		return values, errKey
	}
	return values, nil
}

// CheckYAML rejects a YAML document that exceeds the bounds, before any alias is expanded.
func CheckYAML(b []byte) error {
	_, err := measureYAML(b)
	return err
}

// measureYAML is CheckYAML that also returns the number of values, or 0 for a small document.
func measureYAML(b []byte) (values int64, err error) {
	aliases := bytes.IndexByte(b, '&') >= 0 && bytes.IndexByte(b, '*') >= 0
	// Each level, list and object needs one of these characters.
	marks := 0
	for _, c := range b {
		switch c {
		case '[', '{', '-', ':', '?':
			marks++
		}
	}
	if !aliases && marks <= MaxDepth && len(b) <= MaxKey {
		return 0, nil
	}
	var n yaml.Node
	if err = yaml.Unmarshal(b, &n); err != nil {
		if !aliases {
			return 0, nil // the decoder reports it in its own words
		}
		return 0, fmt.Errorf("error converting YAML to JSON: %w", err)
	}
	m := measurer{known: map[*yaml.Node]measure{}}
	all := m.measure(&n)
	switch {
	case m.key > MaxKey:
		return all.values, errKey
	case m.aliases && all.size > MaxExpanded:
		return all.values, errAliases
	case all.depth > MaxDepth:
		return all.values, errDeep
	case all.containers > MaxContainers:
		return all.values, errContainers
	case all.values > MaxValues:
		return all.values, errValues
	}
	return all.values, nil
}

// measure is the size of a value. size is in bytes.
type measure struct{ size, depth, containers, values int64 }

// beyond exceeds every bound. Adding to it does not overflow.
const beyond = 1 << 40

// measurer measures the values of a YAML document. It measures the target of an alias once.
type measurer struct {
	known   map[*yaml.Node]measure
	aliases bool
	key     int
}

// measure returns the size of a node with its aliases expanded.
func (m *measurer) measure(n *yaml.Node) measure {
	const separators = 2
	switch n.Kind {
	case yaml.ScalarNode:
		return m.remember(n, measure{size: int64(len(n.Value)) + separators, values: 1})
	case yaml.AliasNode:
		m.aliases = true
		if target, ok := m.known[n.Alias]; ok {
			return target
		}
		return measure{size: beyond} // the alias is inside its own target
	}
	var total measure
	if n.Kind != yaml.DocumentNode {
		total = measure{size: separators, containers: 1, values: 1}
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			m.key = max(m.key, len(c.Value))
		}
		child := m.measure(c)
		total.size = min(beyond, total.size+child.size)
		total.containers = min(beyond, total.containers+child.containers)
		total.values = min(beyond, total.values+child.values)
		total.depth = max(total.depth, child.depth)
	}
	if n.Kind != yaml.DocumentNode {
		total.depth++
	}
	return m.remember(n, total)
}

// remember records the size of a node that aliases may refer to.
func (m *measurer) remember(n *yaml.Node, size measure) measure {
	if n.Anchor != "" {
		m.known[n] = size
	}
	return size
}

// message describes the contents of a Go type's protobuf message, by field number.
type message struct {
	fields map[int]messageField
	// lists holds the fields that are lists or maps of anything but messages.
	lists map[int]bool
	// texts and numbers hold the fields with text and with floating-point numbers.
	texts   map[int]textField
	numbers map[int]string
	// rule checks the whole message instead of its fields. It may be nil.
	rule func([]byte) error
}

// messageField describes a field of a protobuf message.
type messageField struct {
	name string
	of   *message
	// entry is true for a map whose values are messages.
	entry bool
	// size is the size of a list element in bytes; 0 if the field is no list.
	size int
}

// messages caches the descriptions of types.
type messages struct {
	mu     sync.Mutex
	known  map[reflect.Type]*message
	shapes map[reflect.Type]*typeShape
}

// of returns the message of a type, or nil for a type without fields. The caller holds mu.
func (s *messages) of(t reflect.Type) *message {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	if m := s.known[t]; m != nil {
		return m
	}
	m := &message{
		fields:  map[int]messageField{},
		lists:   map[int]bool{},
		texts:   map[int]textField{},
		numbers: map[int]string{},
		rule:    messageRule(t),
	}
	s.known[t] = m
	for i := range t.NumField() {
		f := t.Field(i)
		parts := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(parts) < 3 || parts[0] != "bytes" && parts[0] != "fixed64" {
			continue
		}
		number, err := strconv.Atoi(parts[1])
		if err != nil {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if isFloat(f.Type) {
			m.numbers[number] = name
			continue
		}
		if text, ok := textOf(name, f.Type); ok {
			m.texts[number] = text
		}
		of := f.Type
		if of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if inner := s.of(of); inner != nil {
			field := messageField{name: name, of: inner, entry: f.Type.Kind() == reflect.Map}
			if f.Type.Kind() == reflect.Slice {
				field.size = int(of.Elem().Size())
			}
			m.fields[number] = field
		} else {
			m.lists[number] = parts[2] == "rep"
		}
	}
	return m
}

// checkProtobuf rejects a protobuf object that exceeds the bounds or is malformed. Some decoders
// accept a malformed message that this check cannot read, and would see other values.
func (c *Codec) checkProtobuf(body []byte, expected schema.GroupVersionKind) error {
	_, err := c.measureProtobuf(body, expected)
	return err
}

// Values returns the approximate number of values of a protobuf body. The type is the one that the
// body names, or else want. Values returns 0 for other media types, whose text shows the number of
// values, and for a body that will be rejected.
func (c *Codec) Values(media string, body []byte, expected schema.GroupVersionKind) int {
	if media != api.MediaProtobuf {
		return 0
	}
	m, err := c.measureProtobuf(body, expected)
	if err != nil {
		return 0
	}
	return int(max(m.values, m.containers))
}

// Values returns the approximate number of values of a stored object, and whether the object is
// protobuf.
func (k *Coder) Values(stored []byte) (int, bool) {
	if !isEnvelope(stored) {
		return 0, false
	}
	raw, _, _, err := openEnvelope(stored)
	if err != nil {
		return 0, true // the decoder reports it
	}
	m, err := k.codec.measureMessage(raw, k.newStored())
	if err != nil {
		return MaxValues, true
	}
	return int(max(m.values, m.containers)), true
}

// measureProtobuf measures the objects that a protobuf body decodes to.
func (c *Codec) measureProtobuf(body []byte, expected schema.GroupVersionKind) (m measure, err error) {
	raw, apiVersion, kind, err := openEnvelope(body)
	if err == nil {
		gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
		if gvk.Kind == "" {
			gvk.Kind = expected.Kind
		}
		if gvk.Version == "" {
			gvk.Group = expected.Group
			gvk.Version = expected.Version
		}
		var obj runtime.Object
		if obj, err = c.scheme.New(gvk); err != nil {
			return measure{}, nil // the decoder reports it
		}
		m, err = c.measureMessage(raw, obj)
	}
	if !isEnvelope(body) {
		return m, nil // the decoder rejects it
	}
	return m, err
}

// checkMessage rejects a protobuf message of a Go type that exceeds the bounds.
func (c *Codec) checkMessage(raw []byte, of runtime.Object) error {
	_, err := c.measureMessage(raw, of)
	return err
}

// measureMessage measures a message of a Go type. It returns an error if it exceeds the bounds.
func (c *Codec) measureMessage(raw []byte, of runtime.Object) (total measure, err error) {
	c.messages.mu.Lock()
	m := c.messages.of(reflect.TypeOf(of))
	c.messages.mu.Unlock()
	err = m.check(raw, &total)
	return total, err
}

// check checks a message and adds its size to total.
func (m *message) check(b []byte, total *measure) error {
	total.depth++
	defer func() { total.depth-- }()
	if total.depth > MaxDepth {
		return errDeep
	}
	total.containers++
	if total.containers > MaxContainers {
		return errContainers
	}
	if m.rule != nil {
		return m.rule(b)
	}
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		if m.lists[f.num] {
			total.values++
			if total.values > MaxValues {
				return errValues
			}
		}
		if err := m.checkLeaf(f); err != nil {
			return err
		}
		inner, ok := m.fields[f.num]
		if !ok || f.typ != wireBytes {
			continue
		}
		total.size += int64(inner.size)
		if total.size > MaxListBytes {
			return errListsTooLarge
		}
		check := inner.of.check
		if inner.entry {
			check = inner.of.checkEntry
		}
		if err := check(f.data, total); err != nil {
			return atField(inner.name, err)
		}
	}
	return nil
}

// checkLeaf checks a field that is not a message.
func (m *message) checkLeaf(f wireField) error {
	switch f.typ {
	case wireBytes:
		if text, ok := m.texts[f.num]; ok {
			if err := text.check(f.data); err != nil {
				return atField(text.name, err)
			}
		}
	case wire64:
		if name, ok := m.numbers[f.num]; ok {
			if err := checkNumber(f.u); err != nil {
				return atField(name, err)
			}
		}
	}
	return nil
}

// checkEntry is check for a message that is the value of a map entry. An entry may contain several
// values, which some decoders merge into one.
func (m *message) checkEntry(b []byte, total *measure) error {
	values := 0
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		if f.num != mapValue {
			continue
		}
		if f.typ != wireBytes { // some decoders ignore the wire type
			return errWire
		}
		values++
		if err := m.check(f.data, total); err != nil {
			return err
		}
	}
	if values == 0 {
		return m.check(nil, total)
	}
	return nil
}
