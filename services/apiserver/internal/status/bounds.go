package status

import (
	"fmt"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of a Status, which a client reads whole and mostly shows to somebody. What
// is left out is told.
const (
	// MaxCauses is how many causes there are, of all that was found.
	MaxCauses = 1000
	// MaxMessage is how many bytes the message has, and the causes together;
	// maxCause how many one text of a cause has.
	MaxMessage = 64 << 10
	maxCause   = 8 << 10
)

// Invalid is the 422 for what was found in an object.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	left := max(0, len(errs)-MaxCauses)
	err := apierrors.NewInvalid(kind, name, errs[:len(errs)-left])
	err.ErrStatus.Details.Causes = boundedCauses(err.ErrStatus.Details.Causes, left)
	return err
}

// leftOut is a cause that stands for others.
func leftOut(n int) metav1.StatusCause {
	return metav1.StatusCause{Message: fmt.Sprintf("%d more errors are left out", n)}
}

// bounded cuts what is too long.
func bounded(st *metav1.Status) *metav1.Status {
	st.Message = shortened(st.Message, MaxMessage)
	if st.Details == nil {
		return st
	}
	size, long := 0, len(st.Details.Causes) > MaxCauses+1
	const ofLeftOut = 64
	for _, c := range st.Details.Causes {
		size += len(c.Message) + len(c.Field)
		long = long || len(c.Message) > maxCause || len(c.Field) > maxCause
	}
	if size <= MaxMessage+ofLeftOut && !long && len(st.Details.Name) <= maxCause {
		return st
	}
	details := *st.Details // others may have it
	st.Details = &details
	details.Name = shortened(details.Name, maxCause)
	details.Causes = boundedCauses(details.Causes, 0)
	return st
}

// boundedCauses are the first of causes, with a word of the others and of those that
// were left out before.
func boundedCauses(causes []metav1.StatusCause, left int) []metav1.StatusCause {
	out := make([]metav1.StatusCause, 0, len(causes))
	size := 0
	for i, c := range causes {
		c.Message, c.Field = shortened(c.Message, maxCause), shortened(c.Field, maxCause)
		if size += len(c.Message) + len(c.Field); size > MaxMessage || len(out) == MaxCauses {
			return append(out, leftOut(len(causes)-i+left))
		}
		out = append(out, c)
	}
	if left > 0 {
		out = append(out, leftOut(left))
	}
	return out
}

// shortened is a text of at most n bytes, or the beginning of one with a word of
// what is left out.
func shortened(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%s … (%d more bytes are left out)", strings.Clone(s[:n]), len(s)-n)
}
