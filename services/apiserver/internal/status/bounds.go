package status

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// InvalidValue is the 422 for a value whose field the decoder names by its path. An empty
// path stands for the whole object.
func InvalidValue(kind schema.GroupKind, name, path string, reason error) *apierrors.StatusError {
	var at *field.Path
	if path != "" {
		at = field.NewPath(path)
	}
	return Invalid(kind, name, field.ErrorList{field.Invalid(at, field.OmitValueType{}, reason.Error())})
}

// Invalid is the 422 for what was found in an object. No more of it is put into words than is told.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	err := apierrors.NewInvalid(kind, name, nil)
	if len(errs) == 0 {
		return err
	}
	var message joined
	causes := make([]metav1.StatusCause, 0, min(len(errs), MaxCauses))
	size := 0
	for i, e := range errs {
		body := e.ErrorBody()
		cause := metav1.StatusCause{Type: metav1.CauseType(e.Type), Message: shortened(body, maxCause), Field: shortened(e.Field, maxCause)}
		if size += len(cause.Message) + len(cause.Field); size > MaxMessage || i == MaxCauses {
			message.left = len(errs) - i
			causes = append(causes, leftOut(message.left))
			break
		}
		causes = append(causes, cause)
		message.add(e.Field + ": " + body)
	}
	err.ErrStatus.Details.Causes = causes
	err.ErrStatus.Message += ": " + message.String()
	return err
}

// Aggregated is what utilerrors.NewAggregate makes of errors, nil for none, whose text has no more
// than MaxMessage bytes of them: more is not put into words.
func Aggregated[E error](errs []E) error {
	if len(errs) == 0 {
		return nil
	}
	var all joined
	for i, e := range errs {
		if all.text.Len() > MaxMessage {
			all.left = len(errs) - i
			break
		}
		all.add(e.Error())
	}
	return errors.New(all.String())
}

// joined is the text of errors, each once.
type joined struct {
	text strings.Builder
	told map[string]bool
	left int // out
}

func (j *joined) add(text string) {
	if j.told[text] {
		return
	}
	if j.told == nil {
		j.told = map[string]bool{}
	}
	if j.told[text] = true; len(j.told) > 1 {
		j.text.WriteString(", ")
	}
	j.text.WriteString(text)
}

func (j *joined) String() string {
	if j.left > 0 {
		j.add(leftOut(j.left).Message)
	}
	if len(j.told) == 1 {
		return j.text.String()
	}
	return "[" + j.text.String() + "]"
}

// leftOut is a cause that stands for others.
func leftOut(n int) metav1.StatusCause {
	return metav1.StatusCause{Message: fmt.Sprintf("%d more errors are left out", n)}
}

// Shortened is what another server said, within the bounds, and nothing of it that has none.
func Shortened(st *metav1.Status) *metav1.Status {
	out := metav1.Status{
		TypeMeta: st.TypeMeta, Status: shortened(st.Status, maxCause), Code: st.Code,
		Message: st.Message, Reason: metav1.StatusReason(shortened(string(st.Reason), maxCause)),
		ListMeta: metav1.ListMeta{
			SelfLink: shortened(st.SelfLink, maxCause), ResourceVersion: shortened(st.ResourceVersion, maxCause),
			Continue: shortened(st.Continue, maxCause), RemainingItemCount: st.RemainingItemCount,
		},
	}
	if d := st.Details; d != nil {
		out.Details = &metav1.StatusDetails{
			Name: d.Name, Group: shortened(d.Group, maxCause), Kind: shortened(d.Kind, maxCause),
			UID: types.UID(shortened(string(d.UID), maxCause)), Causes: d.Causes, RetryAfterSeconds: d.RetryAfterSeconds,
		}
	}
	return bounded(&out)
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
	details.Causes = boundedCauses(details.Causes)
	return st
}

// boundedCauses are the first of causes, with a word of the others.
func boundedCauses(causes []metav1.StatusCause) []metav1.StatusCause {
	out := make([]metav1.StatusCause, 0, len(causes))
	size := 0
	for i, c := range causes {
		c.Message, c.Field = shortened(c.Message, maxCause), shortened(c.Field, maxCause)
		if size += len(c.Message) + len(c.Field); size > MaxMessage || len(out) == MaxCauses {
			return append(out, leftOut(len(causes)-i))
		}
		out = append(out, c)
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
