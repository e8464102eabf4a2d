package schema

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/customresource/tape"
)

// step is one step from the root of a document to a value.
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

// name renders steps as the messages of schemas do: a.b[0].c, without a mark
// for keys of maps.
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

// unknownName renders steps as warnings of unknown fields do.
func unknownName(d *tape.Doc, steps []step) string {
	return strings.TrimPrefix(name(d, steps), ".")
}

// fieldPath renders steps below a path, with keys of maps in brackets.
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
