package transcode

import (
	"fmt"
	"reflect"
	"slices"
)

// Rule describes which messages of one type defaults leave unchanged. A message that breaks a rule
// is not transcoded.
type Rule struct {
	Of reflect.Type
	// Set holds the JSON names of fields that are present with a value other than zero. A pointer
	// may point to a zero value.
	Set []string
	// Check inspects the Fields, given by their JSON names, or by Go name for an inline field.
	// There are at most four. Each argument is the field's bytes on the wire: the content of a
	// string or a message, the varint of a number, or for a list or map everything from the first
	// to the last entry, tags included. It is nil for a missing field. Check returns false if
	// defaults might change the message.
	Fields []string
	Check  func([4][]byte) bool
}

// Rules returns a function that returns the given rules. No rules mean that defaults change only
// objects that a program cannot write anyway.
func Rules(rules ...Rule) func() []Rule { return func() []Rule { return rules } }

// FieldsSet returns the rule that messages of a type have the given fields, by JSON name.
func FieldsSet[T any](fields ...string) Rule { return Rule{Of: reflect.TypeFor[T](), Set: fields} }

// FieldsPass returns the rule that the given fields of a type, by JSON name, pass a check.
func FieldsPass[T any](check func([4][]byte) bool, fields ...string) Rule {
	return Rule{Of: reflect.TypeFor[T](), Fields: fields, Check: check}
}

// Each calls visit with each occurrence of a length-delimited field in data: the content of bytes, a
// string, a message or a map entry. It returns false if visit does, or if data is not a message.
func Each(data []byte, number int, visit func(content []byte) bool) bool {
	wantTag := uint64(number)<<3 | wireBytes
	for i := 0; i < len(data); {
		tag, next := varint(data, i)
		if next < 0 {
			return false
		}
		n, end := varint(data, next)
		if end < 0 || tag&7 != wireBytes && tag&7 != wireVarint {
			return false
		}
		i = end
		if tag&7 == wireVarint {
			continue
		}
		if n > uint64(len(data)-end) {
			return false
		}
		i += int(n)
		if tag == wantTag && !visit(data[end:i]) {
			return false
		}
	}
	return true
}

// Number returns the value of a varint field, or 0 if the message lacks it. ok is false if data is not
// a message.
func Number(data []byte, number int) (value uint64, ok bool) {
	wantTag := uint64(number)<<3 | wireVarint
	for i := 0; i < len(data); {
		tag, next := varint(data, i)
		if next < 0 {
			return 0, false
		}
		n, end := varint(data, next)
		if end < 0 || tag&7 != wireBytes && tag&7 != wireVarint {
			return 0, false
		}
		i = end
		if tag&7 == wireBytes {
			if n > uint64(len(data)-end) {
				return 0, false
			}
			i += int(n)
		}
		if tag == wantTag {
			value = n
		}
	}
	return value, true
}

// Text returns the content of a string field, or nil if the message lacks it. ok is false if b is
// not a message.
func Text(b []byte, number int) (content []byte, ok bool) {
	ok = Each(b, number, func(in []byte) bool { content = in; return true })
	return content, ok
}

// First returns the number of the first field of a message, or 0 if there is none.
func First(b []byte) int {
	tag, next := varint(b, 0)
	if next < 0 || tag>>3 > maxNumber {
		return 0
	}
	return int(tag >> 3)
}

// check is a compiled Rule.Check.
type check struct {
	fields [4]int8 // indexes in message.fields; the first n are used
	count  int
	pass   func([4][]byte) bool
}

// applyRules compiles the rules for a type. names maps field names to indexes.
func (c *compiler) applyRules(msg *message, goType reflect.Type, names map[string]int) error {
	for _, rule := range c.rules {
		if rule.Of != goType {
			continue
		}
		for _, name := range slices.Concat(rule.Set, rule.Fields) {
			if _, ok := names[name]; !ok {
				return fmt.Errorf("%s has no field %s that a rule could look at", goType, name)
			}
		}
		for _, name := range rule.Set {
			msg.needed |= 1 << names[name]
		}
		if rule.Check == nil {
			continue
		}
		compiled := check{count: len(rule.Fields), pass: rule.Check}
		for i, name := range rule.Fields {
			compiled.fields[i] = int8(names[name])
		}
		msg.checks = append(msg.checks, compiled)
	}
	for i := range msg.fields {
		msg.fields[i].needed = msg.needed>>i&1 != 0
	}
	msg.ordered = msg.ordered && len(msg.checks) == 0
	// Defaults would change a message without fields.
	if msg.needed != 0 || len(msg.checks) > 0 {
		msg.empty = nil
	}
	return nil
}

// satisfiesRules reports whether a scanned message satisfies the rules.
func (m *message) satisfiesRules(encoded []byte, at []position, found uint64) bool {
	if found&m.needed != m.needed {
		return false
	}
	for i := range m.checks {
		check := &m.checks[i]
		var inputs [4][]byte
		for j := range check.count {
			if f := check.fields[j]; found>>f&1 != 0 {
				inputs[j] = encoded[at[f].from:at[f].to:at[f].to]
			}
		}
		if !check.pass(inputs) {
			return false
		}
	}
	return true
}
