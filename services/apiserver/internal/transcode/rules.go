package transcode

import (
	"fmt"
	"reflect"
	"slices"
)

// Rule tells of what an object has in its messages of one type when defaults leave it
// as it is.
type Rule struct {
	Of reflect.Type
	// Set are the JSON names of the fields that it has, other than as their zero
	// value; a pointer may lead to one.
	Set []string
	// Check looks at some fields, by their JSON names, or what stands inline, by its
	// Go name. Each is its bytes on the wire: the content of a text or a message; of
	// a number; of a list or map all from the first to the last, tags included. Nil
	// stands for one that the message does not have. It returns false for what
	// defaults might change. There are four fields at most.
	Fields []string
	Check  func([4][]byte) bool
}

// Rules are those given, which may be none: what cannot be written from bytes is all
// that a default changes.
func Rules(all ...Rule) func() []Rule { return func() []Rule { return all } }

// Filled is the rule that a type has some fields, by their JSON names.
func Filled[T any](set ...string) Rule { return Rule{Of: reflect.TypeFor[T](), Set: set} }

// Checked is the rule that a type's fields, by their JSON names, pass a check.
func Checked[T any](check func([4][]byte) bool, fields ...string) Rule {
	return Rule{Of: reflect.TypeFor[T](), Fields: fields, Check: check}
}

// Each goes through the contents of a field that is bytes, a text, a message or the
// entry of a map, in what holds it. It returns false when visit does, and for what is
// no message.
func Each(b []byte, number int, visit func(content []byte) bool) bool {
	want := uint64(number)<<3 | wireBytes
	for i := 0; i < len(b); {
		tag, next := varint(b, i)
		if next < 0 {
			return false
		}
		n, end := varint(b, next)
		if end < 0 || tag&7 != wireBytes && tag&7 != wireVarint {
			return false
		}
		if i = end; tag&7 == wireVarint {
			continue
		}
		if n > uint64(len(b)-end) {
			return false
		}
		i += int(n)
		if tag == want && !visit(b[end:i]) {
			return false
		}
	}
	return true
}

// Number finds a field that is a number; 0 when the message does not have it. ok is
// false for what is no message.
func Number(b []byte, number int) (value uint64, ok bool) {
	want := uint64(number)<<3 | wireVarint
	for i := 0; i < len(b); {
		tag, next := varint(b, i)
		if next < 0 {
			return 0, false
		}
		n, end := varint(b, next)
		if end < 0 || tag&7 != wireBytes && tag&7 != wireVarint {
			return 0, false
		}
		if i = end; tag&7 == wireBytes {
			if n > uint64(len(b)-end) {
				return 0, false
			}
			i += int(n)
		}
		if tag == want {
			value = n
		}
	}
	return value, true
}

// Text finds a field that is a text; "" when the message does not have it. ok is
// false for what is no message.
func Text(b []byte, number int) (content []byte, ok bool) {
	ok = Each(b, number, func(in []byte) bool { content = in; return true })
	return content, ok
}

// First is the number of the first field of a message; 0 when it has none.
func First(b []byte) int {
	tag, next := varint(b, 0)
	if next < 0 || tag>>3 > maxNumber {
		return 0
	}
	return int(tag >> 3)
}

// check is a compiled Rule.Check.
type check struct {
	fields [4]int8
	n      int
	ok     func([4][]byte) bool
}

// heed takes over the rules for a type; names are the indexes of fields.
func (c *compiler) heed(m *message, t reflect.Type, names map[string]int) error {
	for _, r := range c.rules {
		if r.Of != t {
			continue
		}
		for _, name := range slices.Concat(r.Set, r.Fields) {
			if _, ok := names[name]; !ok {
				return fmt.Errorf("%s has no field %s that a rule could look at", t, name)
			}
		}
		for _, name := range r.Set {
			m.needed |= 1 << names[name]
		}
		if r.Check == nil {
			continue
		}
		ch := check{n: len(r.Fields), ok: r.Check}
		for i, name := range r.Fields {
			ch.fields[i] = int8(names[name])
		}
		m.checks = append(m.checks, ch)
	}
	for i := range m.fields {
		m.fields[i].needed = m.needed>>i&1 != 0
	}
	m.ordered = m.ordered && len(m.checks) == 0
	// Without fields it is not what defaults leave, then.
	if m.needed != 0 || len(m.checks) > 0 {
		m.empty = nil
	}
	return nil
}

// pass applies the rules to a message whose fields have been found.
func (m *message) pass(b []byte, at []place, found uint64) bool {
	if found&m.needed != m.needed {
		return false
	}
	for i := range m.checks {
		ch := &m.checks[i]
		var in [4][]byte
		for j := range ch.n {
			if f := ch.fields[j]; found>>f&1 != 0 {
				in[j] = b[at[f].from:at[f].to:at[f].to]
			}
		}
		if !ch.ok(in) {
			return false
		}
	}
	return true
}
