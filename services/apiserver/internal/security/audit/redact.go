package audit

import (
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/json/tape"
)

const (
	// patchField is the field of the error for a patch whose result cannot be decoded. The value of
	// that error is the whole patched object.
	patchField = "patch"
	// invalidValue precedes a quoted value.
	invalidValue = "Invalid value: "
	// redactedValue replaces the value.
	redactedValue = invalidValue + `"<contents redacted>"`
)

// redactObject returns a Status without the patched object in the messages of a rejected patch.
// Below level RequestResponse an event must not contain objects, including those in messages.
func redactObject(status *metav1.Status) *metav1.Status {
	if status.Details == nil || status.Details.Kind != "" {
		return status
	}
	index := slices.IndexFunc(status.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == patchField && c.Type == metav1.CauseTypeFieldValueInvalid && strings.HasPrefix(c.Message, invalidValue)
	})
	if index < 0 {
		return status
	}
	value := strings.TrimPrefix(status.Details.Causes[index].Message, invalidValue)
	redacted := redactedValue
	if quoted, err := strconv.QuotedPrefix(value); err == nil {
		redacted += value[len(quoted):]
	}
	out := status.DeepCopy()
	out.Details.Causes[index].Message = redacted
	before, _, _ := strings.Cut(status.Message, invalidValue)
	out.Message = before + redacted
	return out
}

// withoutManagedFields removes metadata.managedFields from an object, from each item of a list, or
// from each object in a table. It returns nil for invalid JSON, because that might still contain
// managedFields.
func withoutManagedFields(text []byte) []byte {
	d, err := tape.Parse(text)
	if err != nil {
		return nil
	}
	defer d.Release()
	s := stripper{Doc: d, output: make([]byte, 0, len(text))}
	s.copyValue(tape.Root, "")
	return append(s.output, text[s.copied:]...)
}

// stripper copies a document without managedFields.
type stripper struct {
	*tape.Doc
	output []byte
	copied int // number of bytes of the text that are copied or skipped
}

// copyValue copies a value without the managedFields below it. name is the name of the field that
// has the value, or "" for the whole document.
func (s *stripper) copyValue(ref tape.Ref, name string) {
	switch s.Kind(ref) {
	case tape.Array:
		for i, end := s.First(ref), s.Next(ref); i < end; i = s.Next(i) {
			s.copyValue(i, name)
		}
	case tape.Object:
		if name == "metadata" {
			s.copyMetadata(ref)
			return
		}
		for k, end := s.First(ref), s.Next(ref); k < end; k = s.Next(k + 1) {
			if inner := s.String(k); isMetadataPath(name, inner) {
				s.copyValue(k+1, inner)
			}
		}
	}
}

// isMetadataPath reports whether a field is metadata or contains it. outer is the field whose value
// is the object of the field.
func isMetadataPath(outer, name string) bool {
	switch outer {
	case "":
		return name == "metadata" || name == "items" || name == "rows"
	case "items", "object":
		return name == "metadata"
	case "rows":
		return name == "object"
	}
	return false
}

// copyMetadata omits managedFields with one comma: the preceding one, or for a first field the
// following one.
//
//	{"name":"a","managedFields":[],"x":1} -> {"name":"a","x":1}
//	{"managedFields":[],"x":1}            -> {"x":1}
func (s *stripper) copyMetadata(ref tape.Ref) {
	retained := 0 // the end of the last member that is kept; 0 if none is
	for k, end := s.First(ref), s.Next(ref); k < end; k = s.Next(k + 1) {
		from, _ := s.Span(k)
		_, to := s.Span(k + 1)
		if s.String(k) != "managedFields" {
			retained = to
			continue
		}
		next := s.Next(k + 1)
		switch {
		case retained > 0:
			from, retained = retained, to
		case next < end:
			to, _ = s.Span(next)
		}
		s.output = append(s.output, s.Raw()[s.copied:from]...)
		s.copied = to
	}
}
