package audit

import (
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// patchField is what is invalid when a patch makes something of an object that cannot be
	// decoded. The value is the whole of that then, with all that the stored object has.
	patchField = "patch"
	// invalidValue stands before a value, which is quoted.
	invalidValue = "Invalid value: "
	// leftOut is told instead of it.
	leftOut = invalidValue + `"<contents redacted>"`
)

// withoutObject is a Status that does not show what a refused patch made of an object: who is
// told of no objects must not read them in messages.
func withoutObject(st *metav1.Status) *metav1.Status {
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
	told := leftOut
	if quoted, err := strconv.QuotedPrefix(value); err == nil {
		told += value[len(quoted):]
	}
	short := st.DeepCopy()
	short.Details.Causes[at].Message = told
	before, _, _ := strings.Cut(st.Message, invalidValue)
	short.Message = before + told
	return short
}
