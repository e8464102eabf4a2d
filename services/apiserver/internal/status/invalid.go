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

// Limits of a Status, which a client reads as a whole and usually displays. A text states how much
// was left out.
const (
	// MaxCauses is the maximum number of causes.
	MaxCauses = 1000
	// MaxMessage is the maximum size in bytes of the message, and of all causes together. maxCause
	// is the maximum size of one text of a cause.
	MaxMessage = 64 << 10
	maxCause   = 8 << 10
	// MaxValue is the maximum size in bytes of an object's name or of a text value that an error
	// quotes. Without it, one short request causes a large response: an error quotes the value, each
	// cause repeats it, and JSON escapes the quotes.
	MaxValue = 2 << 10
)

// InvalidValue returns the 422 error for a value whose field the decoder identifies by a path. An
// empty path stands for the whole object.
func InvalidValue(kind schema.GroupKind, name, path string, reason error) *apierrors.StatusError {
	var fieldPath *field.Path
	if path != "" {
		fieldPath = field.NewPath(path)
	}
	return Invalid(kind, name, field.ErrorList{field.Invalid(fieldPath, field.OmitValueType{}, reason.Error())})
}

// Invalid returns the 422 error for the validation errors of an object. It formats only those
// within the limits.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	err := apierrors.NewInvalid(kind, Truncate(name, MaxValue), nil)
	if len(errs) == 0 {
		return err
	}
	var message joinedError
	causes := make([]metav1.StatusCause, 0, min(len(errs), MaxCauses))
	size := 0
	for i, fieldErr := range errs {
		body := errorBody(fieldErr)
		cause := metav1.StatusCause{
			Type:    metav1.CauseType(fieldErr.Type),
			Message: Truncate(body, maxCause),
			Field:   Truncate(fieldErr.Field, maxCause),
		}
		size += len(cause.Message) + len(cause.Field)
		if size > MaxMessage || i == MaxCauses {
			message.omitted = len(errs) - i
			causes = append(causes, omittedCause(message.omitted))
			break
		}
		causes = append(causes, cause)
		message.add(fieldErr.Field + ": " + body)
	}
	err.ErrStatus.Details.Causes = causes
	err.ErrStatus.Message += ": " + message.String()
	return err
}

// errorBody returns the text of an error without its field.
func errorBody(e *field.Error) string {
	if value, ok := e.BadValue.(string); ok && len(value) > MaxValue {
		short := *e
		short.BadValue = Truncate(value, MaxValue)
		e = &short
	}
	return e.ErrorBody()
}

// Aggregated returns the error that utilerrors.NewAggregate returns for errs, or nil for none. Its
// text includes the errors up to MaxMessage bytes; the rest is not formatted.
func Aggregated[E error](errs []E) error {
	if len(errs) == 0 {
		return nil
	}
	var all joinedError
	for i, e := range errs {
		if all.text.Len() > MaxMessage {
			all.omitted = len(errs) - i
			break
		}
		all.add(e.Error())
	}
	return errors.New(all.String())
}

// joinedError is the text of errors without duplicates, up to MaxMessage bytes.
type joinedError struct {
	text     strings.Builder
	reported map[string]bool
	omitted  int // number of errors that the text does not include
}

// add appends the text of an error, or counts it as omitted if there is no room.
func (j *joinedError) add(text string) {
	if j.reported[text] {
		return
	}
	if j.reported == nil {
		j.reported = map[string]bool{}
	}
	j.reported[text] = true
	if len(j.reported) > 1 {
		j.text.WriteString(", ")
	}
	j.text.WriteString(text)
}

func (j *joinedError) String() string {
	if j.omitted > 0 {
		j.add(omittedCause(j.omitted).Message)
	}
	if len(j.reported) == 1 {
		return j.text.String()
	}
	return "[" + j.text.String() + "]"
}

// omittedCause returns a cause that stands for n errors.
func omittedCause(n int) metav1.StatusCause {
	return metav1.StatusCause{Message: fmt.Sprintf("%d more errors are left out", n)}
}

// Shortened returns another server's Status, cut to the limits. It omits all fields that have no
// limit.
func Shortened(status *metav1.Status) *metav1.Status {
	out := metav1.Status{
		TypeMeta: status.TypeMeta,
		Status:   Truncate(status.Status, maxCause),
		Code:     status.Code,
		Message:  status.Message,
		Reason:   metav1.StatusReason(Truncate(string(status.Reason), maxCause)),
		ListMeta: metav1.ListMeta{
			SelfLink:           Truncate(status.SelfLink, maxCause),
			ResourceVersion:    Truncate(status.ResourceVersion, maxCause),
			Continue:           Truncate(status.Continue, maxCause),
			RemainingItemCount: status.RemainingItemCount,
		},
	}
	if details := status.Details; details != nil {
		out.Details = &metav1.StatusDetails{
			Name:              details.Name,
			Group:             Truncate(details.Group, maxCause),
			Kind:              Truncate(details.Kind, maxCause),
			UID:               types.UID(Truncate(string(details.UID), maxCause)),
			Causes:            details.Causes,
			RetryAfterSeconds: details.RetryAfterSeconds,
		}
	}
	return boundStatus(&out)
}

// boundStatus cuts the texts and causes of status to the limits and returns it.
func boundStatus(status *metav1.Status) *metav1.Status {
	status.Message = Truncate(status.Message, MaxMessage)
	if status.Details == nil {
		return status
	}
	size, long := 0, len(status.Details.Causes) > MaxCauses+1
	const omittedCauseSize = 64
	for _, c := range status.Details.Causes {
		size += len(c.Message) + len(c.Field)
		long = long || len(c.Message) > maxCause || len(c.Field) > maxCause
	}
	if size <= MaxMessage+omittedCauseSize && !long && len(status.Details.Name) <= MaxValue {
		return status
	}
	details := *status.Details // they may be shared
	status.Details = &details
	details.Name = Truncate(details.Name, MaxValue)
	details.Causes = boundCauses(details.Causes)
	return status
}

// boundCauses returns the first causes, and one that states how many are left out.
func boundCauses(causes []metav1.StatusCause) []metav1.StatusCause {
	out := make([]metav1.StatusCause, 0, len(causes))
	size := 0
	for i, c := range causes {
		c.Message, c.Field = Truncate(c.Message, maxCause), Truncate(c.Field, maxCause)
		size += len(c.Message) + len(c.Field)
		if size > MaxMessage || len(out) == MaxCauses {
			return append(out, omittedCause(len(causes)-i))
		}
		out = append(out, c)
	}
	return out
}

// Truncate returns text, or its first limit bytes with a note of how much is left out.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return fmt.Sprintf("%s … (%d more bytes are left out)", strings.Clone(text[:limit]), len(text)-limit)
}
