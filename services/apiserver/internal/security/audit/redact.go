package audit

import (
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// patchField is the field of the error for a patch whose result cannot be decoded. The value of that error
	// is the whole patched object.
	patchField = "patch"
	// invalidValue precedes a quoted value.
	invalidValue = "Invalid value: "
	// redactedValue replaces the value.
	redactedValue = invalidValue + `"<contents redacted>"`
)

// redactObject returns a Status without the patched object in the messages of a rejected patch. Below level
// RequestResponse an event must not contain objects, including those in messages.
func redactObject(st *metav1.Status) *metav1.Status {
	if st.Details == nil || st.Details.Kind != "" {
		return st
	}
	at := slices.IndexFunc(st.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == patchField && c.Type == metav1.CauseTypeFieldValueInvalid && strings.HasPrefix(c.Message, invalidValue)
	})
	if at < 0 {
		return st
	}
	value := strings.TrimPrefix(st.Details.Causes[at].Message, invalidValue)
	redacted := redactedValue
	if quoted, err := strconv.QuotedPrefix(value); err == nil {
		redacted += value[len(quoted):]
	}
	out := st.DeepCopy()
	out.Details.Causes[at].Message = redacted
	before, _, _ := strings.Cut(st.Message, invalidValue)
	out.Message = before + redacted
	return out
}
