package codec

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
)

// Memo caches the common parts of the objects of one response (package transcode).
type Memo = transcode.Memo

// programOf returns a function that compiles, on first use, the program that writes the JSON of a
// kind's objects from their stored form. The function returns nil for kinds that are stored as
// another type and for kinds with defaults that no rule describes.
func programOf(k *registry.Kind, sameForm bool, stored reflect.Type) func() *transcode.Program {
	if !sameForm || k.Stored.JSON || k.Default != nil && k.DefaultedRules == nil {
		return func() *transcode.Program { return nil }
	}
	return sync.OnceValue(func() *transcode.Program {
		var rules []transcode.Rule
		if k.DefaultedRules != nil {
			rules = k.DefaultedRules()
		}
		p, err := transcode.Compile(stored, rules...)
		if err != nil {
			return nil // a test knows every kind that has a program
		}
		return p
	})
}

// partialProgram returns the program that writes the JSON of any object's metadata.
func partialProgram() *transcode.Program {
	p, err := transcode.Compile(reflect.TypeFor[metav1.PartialObjectMetadata]())
	if err != nil {
		return nil
	}
	return p
}

// Transcodes reports whether objects are written from their stored form. That is so cheap that
// frames need not be cached.
func (k *Coder) Transcodes() bool { return k.program != nil && k.program() != nil }

// appendTranscoded appends the object of a stored value, without kind and apiVersion. It returns
// false if the value has to be decoded.
func appendTranscoded(p *transcode.Program, dst []byte, it Item, memo *Memo) ([]byte, bool) {
	if p == nil || !isEnvelope(it.Stored) {
		return dst, false
	}
	raw, err := find(it.Stored[len(envelopePrefix):], unknownRaw)
	if err != nil {
		return dst, false
	}
	start := len(dst)
	out, ok := p.Append(dst, raw, it.Revision, memo)
	if !ok {
		return dst[:start], false
	}
	return out, true
}

// appendWithHead appends a head that ends with a comma, followed by an object. The comma replaces
// the object's opening brace.
func appendWithHead(p *transcode.Program, dst, head []byte, it Item, memo *Memo) ([]byte, bool) {
	start := len(dst)
	dst = append(dst, head[:len(head)-1]...)
	brace := len(dst)
	out, ok := appendTranscoded(p, dst, it, memo)
	if !ok {
		return dst[:start], false
	}
	out[brace] = ','
	return out, true
}

// AppendStoredItem appends a stored object as a list item. It returns false if the object has to be
// decoded.
func (k *Coder) AppendStoredItem(dst []byte, it Item, memo *Memo) ([]byte, bool) {
	if k.program == nil {
		return dst, false
	}
	return appendTranscoded(k.program(), dst, it, memo)
}

// AppendStored appends a stored object with its kind and apiVersion. It returns false if the object
// has to be decoded.
func (k *Coder) AppendStored(dst []byte, it Item, memo *Memo) ([]byte, bool) {
	if k.program == nil {
		return dst, false
	}
	return appendWithHead(k.program(), dst, k.heads[Added][objectAt(Added):], it, memo)
}

// AppendPartial appends an object's metadata. It returns false if the object has to be decoded.
func (k *Coder) AppendPartial(dst []byte, version string, it Item, memo *Memo) ([]byte, bool) {
	if k.Decl.Document != nil || version != "v1" {
		return dst, false
	}
	return appendWithHead(k.codec.partial(), dst, k.codec.partialHead, it, memo)
}

// transcodedFrame returns the frame of a watch event.
func (k *Coder) transcodedFrame(p *transcode.Program, head []byte, it Item) (Frame, bool) {
	const mostly = 3 // twice the approximate maximum ratio of JSON size to stored size
	f, ok := appendWithHead(p, make([]byte, 0, len(head)+mostly*len(it.Stored)/2), head, it, nil)
	if !ok {
		return nil, false
	}
	return append(f, '}', '\n'), true
}

// Another server, or damage, may leave a value in the store that decodes and that no list in
// JSON can contain. The watch cache checks each value that arrives, so that one such object is
// reported like an object that cannot be decrypted, and reads of other objects continue.
// Text that is not UTF-8 can be served: JSON has U+FFFD in its place.

// storedMessage describes a protobuf message of a Go type. fields are indexed by field number.
type storedMessage struct {
	fields []storedField
	// rule checks the message instead of its fields; it may be nil.
	rule func([]byte) error
}

// storedField describes a field of a stored message.
type storedField struct {
	name  string         // in JSON; empty for an embedded message
	wire  int            // noField for a number that the type lacks
	list  bool           // a list of numbers, which may also be packed
	entry bool           // the values of a map, in its entries
	of    *storedMessage // nil for text, bytes and numbers
}

// storedMessages caches the descriptions of types.
type storedMessages struct {
	mu    sync.Mutex
	known map[reflect.Type]*storedMessage
}

// of returns the description of a type.
func (s *storedMessages) of(t reflect.Type) *storedMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compile(t)
}

// compile returns the description of a type. The caller holds mu.
func (s *storedMessages) compile(t reflect.Type) *storedMessage {
	if m := s.known[t]; m != nil {
		return m
	}
	m := &storedMessage{rule: storedRule(t)}
	s.known[t] = m
	for i := range t.NumField() {
		f := t.Field(i)
		parts := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(parts) < 3 {
			continue
		}
		number, err := strconv.Atoi(parts[1])
		if err != nil {
			continue
		}
		of := f.Type
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		field := storedField{wire: wireOf(f.Type), entry: f.Type.Kind() == reflect.Map}
		field.list = parts[2] == "rep" && field.wire != wireBytes
		field.name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
		if of.Kind() == reflect.Struct {
			field.of = s.compile(of)
		}
		for len(m.fields) <= number {
			m.fields = append(m.fields, storedField{wire: noField})
		}
		m.fields[number] = field
	}
	return m
}

const noField = -1

// wireOf returns the wire type of a field. Tags of some fields name another one than the
// generated code.
func wireOf(t reflect.Type) int {
	switch t.Kind() {
	case reflect.Pointer:
		return wireOf(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return wireBytes
		}
		return wireOf(t.Elem())
	case reflect.Float64:
		return wire64
	case reflect.Float32:
		return wire32
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return wireVarint
	}
	return wireBytes
}

// storedRule returns the check for a stored message, which another server may have written. It
// returns nil if the message's fields are checked one by one.
func storedRule(t reflect.Type) func([]byte) error {
	switch {
	case t == quantityType, timeTypes[t]:
		return messageRule(t)
	case t == intStringType:
		return eachField(func(f wireField) error {
			if f.num == 1 && f.typ == wireVarint && f.u != uint64(intstr.Int) && f.u != uint64(intstr.String) {
				return invalidValue("type %d is neither an integer nor a string", f.u)
			}
			return nil
		})
	case holdsRaw(t):
		return eachField(func(f wireField) error {
			if f.num == 1 && f.typ == wireBytes && len(f.data) > 0 && !json.Valid(f.data) {
				return invalidValue("invalid JSON in %q", shorten(f.data))
			}
			return nil
		})
	}
	return nil
}

// check returns an error for a message that does not decode, or whose JSON clients cannot read.
func (m *storedMessage) check(b []byte, depth int) error {
	if depth > MaxDepth {
		return errDeep
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
		if f.num >= len(m.fields) || m.fields[f.num].wire == noField {
			continue
		}
		if err := m.fields[f.num].check(f, depth); err != nil {
			return atField(m.fields[f.num].name, err)
		}
	}
	return nil
}

// check returns an error if JSON cannot represent a value of the field, or if the wire type
// differs.
func (d *storedField) check(f wireField, depth int) error {
	switch {
	case f.typ != d.wire && !(d.list && f.typ == wireBytes):
		return errWire
	case d.entry:
		return d.checkEntry(f.data, depth)
	case d.of != nil:
		return d.of.check(f.data, depth+1)
	case d.wire == wire64:
		if n := math.Float64frombits(f.u); math.IsNaN(n) || math.IsInf(n, 0) {
			return invalidValue("%v is not a number of JSON", n)
		}
	}
	return nil
}

func (d *storedField) checkEntry(b []byte, depth int) error {
	return eachField(func(f wireField) error {
		if f.num != mapValue || d.of == nil {
			return nil
		}
		if f.typ != wireBytes {
			return errWire
		}
		return d.of.check(f.data, depth+1)
	})(b)
}

// checkServable returns an error for a stored protobuf message that cannot be served.
func (k *Coder) checkServable(raw []byte) error { return k.stored().check(raw, 1) }
