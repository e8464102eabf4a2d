package jsontext

import (
	"encoding/json"
	"fmt"
	"strings"
)

// NotObjectError reports a value in place of an object.
type NotObjectError struct{ Path []string }

func (e *NotObjectError) Error() string {
	return fmt.Sprintf("value cannot be set because .%s is not a map[string]interface{}", strings.Join(e.Path, "."))
}

// Put returns a document with the given value at a path through objects. It creates missing
// objects. New members are inserted in the order of names. The error is *NotObjectError or
// ErrMalformed.
func Put(doc, value []byte, path ...string) ([]byte, error) {
	return putBelow(doc, value, path, nil)
}

// putBelow sets the value at a path below the members in done, which errors name.
func putBelow(doc, value []byte, path, done []string) ([]byte, error) {
	if len(path) == 0 {
		return value, nil
	}
	if i := Space(doc, 0); i == len(doc) || doc[i] != '{' {
		return nil, &NotObjectError{done}
	}
	name := []byte(path[0])
	var has, next []byte // the member, or the name before which to insert it
	err := Members(doc, func(n, v []byte) bool {
		switch {
		case sameName(n, name):
			has = v // the last of repeated fields counts
		case next == nil && has == nil && Name(n) > path[0]:
			next = n
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	done = append(done, path[0])
	if has != nil {
		inner, err := putBelow(has, value, path[1:], done)
		if err != nil {
			return nil, err
		}
		return Replace(doc, has, inner), nil
	}
	inner := value
	for i := len(path) - 1; i > 0; i-- {
		inner = append(append(append([]byte{'{'}, quotedName(path[i])...), inner...), '}')
	}
	return insertMember(doc, append(quotedName(path[0]), inner...), next), nil
}

// insertMember adds a member to an object before the member with the name next, or at its end.
func insertMember(doc, member, next []byte) []byte {
	at := len(doc) - 1
	for doc[at] != '}' {
		at--
	}
	if next != nil {
		at = cap(doc) - cap(next) - 1 // next is a slice of doc; the quote precedes it
	}
	out := make([]byte, 0, len(doc)+len(member)+1)
	out = append(out, doc[:at]...)
	if next != nil {
		return append(append(append(out, member...), ','), doc[at:]...)
	}
	if first := Space(doc, Space(doc, 0)+1); doc[first] != '}' {
		out = append(out, ',')
	}
	return append(append(out, member...), doc[at:]...)
}

// quotedName returns a name in quotes, followed by a colon.
func quotedName(name string) []byte {
	b, _ := json.Marshal(name) // a string can always be encoded
	return append(b, ':')
}
