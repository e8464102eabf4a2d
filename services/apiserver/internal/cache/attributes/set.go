package attributes

import (
	"encoding/binary"
	"iter"
	"math"
	"unique"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Attributes holds what selectors match on.
type Attributes struct {
	Namespace, Name string
	Labels          Set
	// Fields excludes metadata.name and metadata.namespace, which every entry has.
	Fields Set
}

// Pair is a label or a field with its value.
type Pair struct{ Key, Value string }

// Set is a compact immutable map. Sets with equal keys share one list of keys. The values are in
// one text, which consecutive equal sets share. Set implements labels.Labels and fields.Fields.
//
// The text holds the end of each value in the order of the keys, then the values. An end takes one
// byte if all values together have at most maxNarrow bytes, and wideEnd bytes otherwise. The length
// of the text shows which one applies. For example, the text of {app: web, tier: db} is
// "\x03\x05webdb": "web" ends at 3, "db" at 5.
type Set struct {
	keys *Keys
	text string
}

const (
	// maxNarrow is the maximum size in bytes of values whose ends take one byte.
	maxNarrow = math.MaxUint8
	// wideEnd is the size in bytes of an end of longer values.
	wideEnd = 4
)

// Keys holds the keys of a set in ascending order. Sets with equal keys share it.
type Keys struct{ list []unique.Handle[string] }

// SingleKey returns Keys that hold one key.
func SingleKey(key unique.Handle[string]) *Keys { return &Keys{[]unique.Handle[string]{key}} }

// WithValue returns the set of the single key and a value.
func (k *Keys) WithValue(value string) Set {
	var text []byte
	if len(value) <= maxNarrow {
		text = append(make([]byte, 0, 1+len(value)), byte(len(value)))
	} else {
		text = binary.LittleEndian.AppendUint32(make([]byte, 0, wideEnd+len(value)), uint32(len(value)))
	}
	return Set{k, string(append(text, value...))}
}

// SetFromEncoded returns the set with the Keys and Text of another set.
func SetFromEncoded(keys *Keys, text string) Set { return Set{keys, text} }

// Keys returns the keys of the set. It is nil if the set is empty.
func (s Set) Keys() *Keys { return s.keys }

// Text returns the values of the set in the form that SetFromEncoded accepts.
func (s Set) Text() string { return s.text }

var (
	_ labels.Labels = Set{}
	_ fields.Fields = Set{}
)

// SetFromMap returns the set of a map.
func SetFromMap(m map[string]string) Set {
	pairs := make([]Pair, 0, len(m))
	for k, v := range m {
		pairs = append(pairs, Pair{k, v})
	}
	return SetFromPairs(pairs)
}

// valueAt returns the value of the key at a position.
func (s Set) valueAt(position int) string {
	n := len(s.keys.list)
	if len(s.text) > n+maxNarrow {
		return s.wideValueAt(position)
	}
	start := 0
	if position > 0 {
		start = int(s.text[position-1])
	}
	return s.text[n+start : n+int(s.text[position])]
}

// wideValueAt is valueAt for a text with ends of wideEnd bytes.
func (s Set) wideValueAt(position int) string {
	end := func(position int) int {
		b := s.text[wideEnd*position:]
		return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 | int(b[3])<<24
	}
	start := 0
	if position > 0 {
		start = end(position - 1)
	}
	values := s.text[wideEnd*len(s.keys.list):]
	return values[start:end(position)]
}

// Value returns the value of an interned key. It compares keys by identity, which is faster than
// Lookup.
func (s Set) Value(key unique.Handle[string]) (string, bool) {
	if s.keys == nil {
		return "", false
	}
	for i, k := range s.keys.list {
		if k == key {
			return s.valueAt(i), true
		}
	}
	return "", false
}

// Lookup returns the value of a key and whether the key is present.
func (s Set) Lookup(key string) (string, bool) {
	if s.keys == nil {
		return "", false
	}
	for i, k := range s.keys.list {
		if k.Value() == key {
			return s.valueAt(i), true
		}
	}
	return "", false
}

// Has reports whether a key is present.
func (s Set) Has(key string) bool {
	_, ok := s.Lookup(key)
	return ok
}

// Get returns the value of a key, or "" if the key is absent.
func (s Set) Get(key string) string {
	v, _ := s.Lookup(key)
	return v
}

// Len returns the number of keys.
func (s Set) Len() int {
	if s.keys == nil {
		return 0
	}
	return len(s.keys.list)
}

// All iterates over the pairs in the order of their keys.
func (s Set) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := range s.Len() {
			if !yield(s.keys.list[i].Value(), s.valueAt(i)) {
				return
			}
		}
	}
}

// Fields that every entry has.
const (
	FieldName      = "metadata.name"
	FieldNamespace = "metadata.namespace"
)
