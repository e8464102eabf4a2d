package schema

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/tape"
)

// Report is the result of a check. Its groups are separate because other checks of a resource
// report between them: errors of the scale come after Schema.
type Report struct {
	// Schema holds the violations of the schema's keywords.
	Schema field.ErrorList
	// Embedded holds the errors in the metadata of embedded resources.
	Embedded field.ErrorList
	// Lists holds the duplicates in lists of type set and map.
	Lists field.ErrorList
	// Compared is the time spent on comparing invalid values with the old ones.
	Compared time.Duration
}

// All returns all errors in Kubernetes' order. between are the errors of the scale.
func (r Report) All(between ...*field.Error) field.ErrorList {
	var all field.ErrorList
	all = append(all, r.Schema...)
	all = append(all, between...)
	all = append(all, r.Embedded...)
	return append(all, r.Lists...)
}

// StructuralError returns the error that replaces the schema's rules if the errors found make the
// rules meaningless. Otherwise it returns nil.
func StructuralError(found field.ErrorList) *field.Error {
	for _, e := range found {
		switch e.Type {
		case field.ErrorTypeNotSupported,
			field.ErrorTypeRequired,
			field.ErrorTypeTooLong,
			field.ErrorTypeTooMany,
			field.ErrorTypeTypeInvalid:
			return field.Invalid(nil, nil,
				"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")
		}
	}
	return nil
}

const (
	// maxErrors is the maximum number of errors that are reported for one document.
	maxErrors = 1000
	// maxErrorBytes is the total size in bytes after which no more errors are recorded. The same
	// limit applies to unknown fields. Each path may be nearly as long as the document.
	maxErrorBytes = 1 << 20
)

// mayReport reports whether to format another error.
func (c *checker) mayReport() bool {
	return c.quiet == 0 && len(c.errs) < maxErrors && c.size < maxErrorBytes && c.spent <= c.program.maxCost
}

// add reports an error at the current path. newError receives the path of the value and its name in
// messages.
func (c *checker) add(newError func(at *field.Path, name string) *field.Error) {
	c.failures++
	if !c.mayReport() {
		return
	}
	name := bodyPath(c.doc, c.steps)
	at := c.base
	if short := strings.TrimPrefix(name, "."); short != "" {
		at = at.Child(short)
	}
	c.record(newError(at, name))
}

// errorKey identifies an error. Its detail may be long and shared by many errors.
type errorKey struct{ field, value, detail string }

func errorKeyOf(e *field.Error) errorKey {
	short := field.Error{Type: e.Type, BadValue: e.BadValue}
	return errorKey{e.Field, short.ErrorBody(), e.Detail}
}

// size returns the size of the error in bytes.
func (k errorKey) size() int { return len(k.field) + len(k.value) + len(k.detail) }

// record adds an error unless an equal one is recorded.
func (c *checker) record(fieldErr *field.Error) {
	key := errorKeyOf(fieldErr)
	c.addCost(key.size() / bytesPerCost) // dropErrors may remove the error, and the next one may be as long
	if c.seen[key] {
		return
	}
	if c.seen == nil {
		c.seen = map[errorKey]bool{}
	}
	c.seen[key] = true
	c.size += key.size()
	c.errs = append(c.errs, fieldErr)
}

func (c *checker) reportInvalid(value func() any, format string, args ...any) {
	c.add(func(at *field.Path, name string) *field.Error {
		return field.Invalid(at, value(), name+" in body "+fmt.Sprintf(format, args...))
	})
}

// reportWrongType reports a value of a wrong type or format. got is the actual type, or the text
// that does not have the format.
func (c *checker) reportWrongType(expected, got string) {
	c.add(func(at *field.Path, name string) *field.Error {
		return field.TypeInvalid(at, got, fmt.Sprintf("%s in body must be of type %s: %q", name, expected, got))
	})
}

// reportCombination reports that a combination of schemas rejects a value.
func (c *checker) reportCombination(format string, args ...any) {
	c.failures++
	if !c.mayReport() {
		return
	}
	message := fmt.Sprintf("%q ", bodyPath(c.doc, c.steps)) + fmt.Sprintf(format, args...)
	c.record(field.Invalid(c.base, "", message))
}

func (c *checker) reportMissing(property string) {
	c.failures++
	c.addCost(1) // many properties may be missing in each of many objects
	if !c.mayReport() {
		return
	}
	at := strings.TrimPrefix(bodyPath(c.doc, c.steps)+"."+property, ".")
	c.record(field.Required(c.base.Child(at), ""))
}

// reportForbidden reports a member where the schema allows no further ones.
func (c *checker) reportForbidden(key tape.Ref) {
	c.add(func(at *field.Path, name string) *field.Error {
		property := c.doc.String(key)
		return field.Invalid(at, property, fmt.Sprintf("%s.%s in body is a forbidden property", name, property))
	})
}

// step is one step on the path from the root of a document to a value.
type step struct {
	kind  stepKind
	key   tape.Ref // of a member
	index int32    // of an item
}

// stepKind distinguishes the steps of a path to a value.
type stepKind uint8

const (
	stepProp  stepKind = iota // a property that the schema names
	stepValue                 // another member of an object
	stepIndex                 // an item
)

// bodyPath formats steps like the messages of schemas: a.b[0].c, with no special form for map keys.
func bodyPath(doc *tape.Doc, steps []step) string {
	var builder strings.Builder
	for _, pathStep := range steps {
		switch pathStep.kind {
		case stepIndex:
			builder.WriteByte('[')
			builder.WriteString(strconv.Itoa(int(pathStep.index)))
			builder.WriteByte(']')
			continue
		case stepProp:
			if builder.Len() > 0 {
				builder.WriteByte('.')
			}
		case stepValue:
			builder.WriteByte('.')
		}
		builder.WriteString(doc.String(pathStep.key))
	}
	return builder.String()
}

// fieldPath appends steps to a path, with map keys in brackets.
func fieldPath(doc *tape.Doc, base *field.Path, steps []step) *field.Path {
	at := base
	for _, pathStep := range steps {
		switch pathStep.kind {
		case stepIndex:
			at = at.Index(int(pathStep.index))
		case stepProp:
			at = at.Child(doc.String(pathStep.key))
		case stepValue:
			at = at.Key(doc.String(pathStep.key))
		}
	}
	return at
}
