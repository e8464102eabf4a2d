package schema

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/customresource/tape"
)

const (
	// maxErrors is how many errors of one document are reported.
	maxErrors = 1000
	// maxTold is how many bytes they may have before no more are kept, and so for unknown fields: the
	// path to each may be nearly as long as the document.
	maxTold = 1 << 20
)

// heard tells whether an error is to be put into words.
func (c *checker) heard() bool {
	return c.quiet == 0 && len(c.errs) < maxErrors && c.size < maxTold && c.spent <= c.program.most
}

// add reports an error at the current place. make gets the path of the value
// and its name in messages.
func (c *checker) add(make func(at *field.Path, name string) *field.Error) {
	c.fails++
	if !c.heard() {
		return
	}
	name := name(c.doc, c.steps)
	at := c.base
	if short := strings.TrimPrefix(name, "."); short != "" {
		at = at.Child(short)
	}
	c.put(make(at, name))
}

// telling is what an error tells. Its detail may be long, and one for many.
type telling struct{ field, value, detail string }

func tellingOf(e *field.Error) telling {
	short := field.Error{Type: e.Type, BadValue: e.BadValue}
	return telling{e.Field, short.ErrorBody(), e.Detail}
}

// size is in bytes.
func (t telling) size() int { return len(t.field) + len(t.value) + len(t.detail) }

// put keeps an error that is not yet there.
func (c *checker) put(e *field.Error) {
	told := tellingOf(e)
	c.spend(told.size() / toldBytes) // it may be forgotten, and the next one be as long
	if c.seen[told] {
		return
	}
	if c.seen == nil {
		c.seen = map[telling]bool{}
	}
	c.seen[told] = true
	c.size += told.size()
	c.errs = append(c.errs, e)
}

// invalid reports a value.
func (c *checker) invalid(value func() any, format string, args ...any) {
	c.add(func(at *field.Path, name string) *field.Error {
		return field.Invalid(at, value(), name+" in body "+fmt.Sprintf(format, args...))
	})
}

// wrongType reports a value that is not of a type or format. got says what it
// is, or is the text that has not the format.
func (c *checker) wrongType(want, got string) {
	c.add(func(at *field.Path, name string) *field.Error {
		return field.TypeInvalid(at, got, fmt.Sprintf("%s in body must be of type %s: %q", name, want, got))
	})
}

// composite reports what a combination of schemas says of a value.
func (c *checker) composite(format string, args ...any) {
	c.fails++
	if !c.heard() {
		return
	}
	message := fmt.Sprintf("%q ", name(c.doc, c.steps)) + fmt.Sprintf(format, args...)
	c.put(field.Invalid(c.base, "", message))
}

// missing reports a property that is required.
func (c *checker) missing(property string) {
	c.fails++
	c.spend(1) // many may be missing in each of many objects
	if !c.heard() {
		return
	}
	at := strings.TrimPrefix(name(c.doc, c.steps)+"."+property, ".")
	c.put(field.Required(c.base.Child(at), ""))
}

// forbidden reports a member where the schema allows no others.
func (c *checker) forbidden(key tape.Ref) {
	c.add(func(at *field.Path, name string) *field.Error {
		property := c.doc.String(key)
		return field.Invalid(at, property, fmt.Sprintf("%s.%s in body is a forbidden property", name, property))
	})
}
