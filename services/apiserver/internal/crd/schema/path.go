package schema

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/tape"
)

// step is one step on the path from the root of a document to a value.
type step struct {
	kind  stepKind
	key   tape.Ref
	index int32
}

type stepKind uint8

const (
	stepProp  stepKind = iota // a property that the schema names
	stepValue                 // another member of an object
	stepIndex                 // an item
)

// name formats steps like the messages of schemas: a.b[0].c, with no special form for map keys.
func name(d *tape.Doc, steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		switch s.kind {
		case stepIndex:
			b.WriteByte('[')
			b.WriteString(strconv.Itoa(int(s.index)))
			b.WriteByte(']')
			continue
		case stepProp:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
		case stepValue:
			b.WriteByte('.')
		}
		b.WriteString(d.String(s.key))
	}
	return b.String()
}

// unknownName formats steps like warnings about unknown fields.
func unknownName(d *tape.Doc, steps []step) string {
	return strings.TrimPrefix(name(d, steps), ".")
}

// fieldPath appends steps to a path, with map keys in brackets.
func fieldPath(d *tape.Doc, base *field.Path, steps []step) *field.Path {
	at := base
	for _, s := range steps {
		switch s.kind {
		case stepIndex:
			at = at.Index(int(s.index))
		case stepProp:
			at = at.Child(d.String(s.key))
		case stepValue:
			at = at.Key(d.String(s.key))
		}
	}
	return at
}
