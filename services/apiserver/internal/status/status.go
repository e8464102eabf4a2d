package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/storage"
)

// Error returns a Status as an error.
func Error(code int, reason metav1.StatusReason, message string, details *metav1.StatusDetails) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    int32(code),
		Reason:  reason,
		Message: message,
		Details: details,
	}}
}

// The errors of paths, methods and media types have the texts of Kubernetes.

// NoResource returns the 404 error for a path that names no resource.
func NoResource() error {
	return Error(http.StatusNotFound, metav1.StatusReasonNotFound,
		"the server could not find the requested resource", &metav1.StatusDetails{})
}

// Method returns the 405 error for a method that the path does not support.
func Method() error {
	return Error(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource", &metav1.StatusDetails{})
}

// LongFields returns the 431 error for header fields that together exceed maximum bytes.
func LongFields(names []string, maximum int) error {
	return Error(http.StatusRequestHeaderFieldsTooLarge, "RequestHeaderFieldsTooLarge",
		fmt.Sprintf("the header fields %s may have %d bytes together", strings.Join(names, ", "), maximum), nil)
}

// NoRepresentation returns the 406 error for an Accept header without a known media type.
func NoRepresentation(types []string) error {
	return Error(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"406: Not Acceptable\n\nAvailable representations: "+strings.Join(types, ", "), &metav1.StatusDetails{})
}

// NotAcceptable returns the 406 error for a media type that this response does not have.
func NotAcceptable(types []string) error {
	return Error(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+strings.Join(types, ", "), nil)
}

// NotInForm returns the 406 error for a meta.k8s.io form that the response does not have.
func NotInForm(text string) error {
	return Error(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, text, nil)
}

// BodyType returns the 415 error for a body whose media type is not one of types.
func BodyType(types []string) error {
	return Error(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(types, ", "),
		nil)
}

// PatchType returns the 415 error for a media type that is not a patch type of the resource.
func PatchType() error {
	return Error(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"415: Unsupported Media Type", &metav1.StatusDetails{})
}

// ClosedRequest is the status code of a request whose client disconnected before the response. It
// appears in logs and metrics only.
const ClosedRequest = 499

// Gone returns the error of a request whose client disconnected.
func Gone() error {
	return Error(ClosedRequest, metav1.StatusReasonUnknown, "the client closed the request", nil)
}

// Unprocessable returns the 422 error for a patch that cannot be applied to this object.
func Unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// Unmergeable returns the 422 error for a patch that cannot be applied to any object of the kind.
func Unmergeable(err error) error {
	return Error(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error(), nil)
}

// TooLargeVersion returns the error of a read at a version that is not reached within the time that
// a read waits (specification: "Errors").
func TooLargeVersion(requested, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", requested, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{
		{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"},
	}
	return err
}

// ExpiredVersion returns the error of a read of history that is no longer kept.
func ExpiredVersion(requested, oldest int64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", requested, oldest))
}

// Ref identifies an object in messages.
type Ref struct {
	Resource schema.GroupResource
	Name     string
}

// Translate converts an error of the store to an API error. It returns API errors unchanged.
func (ref Ref) Translate(err error) error {
	var (
		api          apierrors.APIStatus
		exists       *storage.ExistsError
		conflict     *storage.ConflictError
		compacted    *storage.CompactedError
		unsealed     *storage.SealError
		precondition *storage.PreconditionError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &api):
		return err
	case errors.Is(err, storage.ErrNotFound):
		return apierrors.NewNotFound(ref.Resource, ref.Name)
	case errors.As(err, &exists):
		return apierrors.NewAlreadyExists(ref.Resource, ref.Name)
	case errors.As(err, &conflict), errors.As(err, &precondition):
		return apierrors.NewConflict(ref.Resource, ref.Name, ErrModified)
	case errors.As(err, &compacted):
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	case errors.As(err, &unsealed):
		return apierrors.NewInternalError(unsealed)
	case errors.Is(err, storage.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError("etcdserver: request is too large")
	case errors.Is(err, context.DeadlineExceeded):
		return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within the allowed duration: %v", err), 0)
	case errors.Is(err, context.Canceled):
		return Gone()
	case errors.Is(err, storage.ErrFull):
		return &fullError{
			Error(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error(), nil).(*apierrors.StatusError),
		}
	case errors.Is(err, storage.ErrUnavailable):
		return Error(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error(), nil)
	}
	return err
}

// fullError is an API error that errors.Is recognizes as storage.ErrFull.
type fullError struct{ *apierrors.StatusError }

func (e *fullError) Unwrap() []error { return []error{e.StatusError, storage.ErrFull} }

// Failed returns a 500 error with a message and without a reason.
func Failed(message string) error { return Error(http.StatusInternalServerError, "", message, nil) }

// Reloading returns the error of requests while the cache is reloading.
func Reloading() error {
	return apierrors.NewTooManyRequests("storage is (re)initializing", 1)
}

// ManyWait returns the 429 error for a request that would have to wait while too many other
// requests wait.
func ManyWait() error {
	return apierrors.NewTooManyRequests("Too many requests wait already, please try again later", 1)
}

// ErrModified is the reason of a conflict: the object has another resourceVersion.
var ErrModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// FromError returns the Status of any error, cut to MaxMessage and MaxCauses. As in Kubernetes, the
// Status of an error without a reason has none.
func FromError(err error) *metav1.Status {
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		status := api.Status()
		if status.Status == "" {
			status.Status = metav1.StatusFailure
		}
		if status.Code == 0 {
			status.Code = http.StatusInternalServerError
		}
		return boundStatus(&status)
	}
	return boundStatus(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()})
}
