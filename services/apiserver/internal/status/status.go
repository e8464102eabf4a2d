package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/storage"
)

// Error is a Status as an error.
func Error(code int, reason metav1.StatusReason, message string, details *metav1.StatusDetails) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, Details: details,
	}}
}

// The errors of paths, methods and media types have the texts of Kubernetes.

// NoResource is the 404 for a path of nothing.
func NoResource() error {
	return Error(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource", &metav1.StatusDetails{})
}

// Method is the 405 for a path that does not take a method.
func Method() error {
	return Error(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource", &metav1.StatusDetails{})
}

// LongFields is the 431 for header fields that are longer than anybody's.
func LongFields(names []string, most int) error {
	return Error(http.StatusRequestHeaderFieldsTooLarge, "RequestHeaderFieldsTooLarge", fmt.Sprintf("the header fields %s may have %d bytes together", joinComma(names), most), nil)
}

// NoRepresentation is the 406 for an Accept header in which nothing is known.
func NoRepresentation(types []string) error {
	return Error(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "406: Not Acceptable\n\nAvailable representations: "+joinComma(types), &metav1.StatusDetails{})
}

// NotAcceptable is the 406 for a media type that this answer does not have.
func NotAcceptable(types []string) error {
	return Error(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media types are accepted: "+joinComma(types), nil)
}

// NotInForm is the 406 for a form of meta.k8s.io that the answer does not have.
func NotInForm(text string) error {
	return Error(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, text, nil)
}

// BodyType is the 415 for a body.
func BodyType(types []string) error {
	return Error(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "the body of the request was in an unknown format - accepted media types include: "+joinComma(types), nil)
}

// PatchType is the 415 for a media type that is no patch of the resource.
func PatchType() error {
	return Error(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "415: Unsupported Media Type", &metav1.StatusDetails{})
}

// ClosedRequest is the code of a request whose client went away before the answer:
// it is in logs and metrics, and nobody receives it.
const ClosedRequest = 499

// Gone answers such a request.
func Gone() error {
	return Error(ClosedRequest, metav1.StatusReasonUnknown, "the client closed the request", nil)
}

func joinComma(s []string) string {
	out := ""
	for i, x := range s {
		if i > 0 {
			out += ", "
		}
		out += x
	}
	return out
}

// Unprocessable is the 422 for a patch that cannot be applied to this object.
func Unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// Unmergeable is the 422 for a patch that fits no object of the kind.
func Unmergeable(err error) error {
	return Error(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error(), nil)
}

// TooLargeVersion answers a read at a version that has not come to be within
// the time that a read waits (specification: "Errors").
func TooLargeVersion(asked, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// ExpiredVersion is the message of a read of history that is no longer kept.
func ExpiredVersion(asked, oldest int64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", asked, oldest))
}

// Ref names an object in messages.
type Ref struct {
	Resource schema.GroupResource
	Name     string
}

// Translate turns an error of the store into the Status error that clients know.
// Errors that are one already pass.
func (ref Ref) Translate(err error) error {
	var (
		api       apierrors.APIStatus
		exists    *storage.ExistsError
		conflict  *storage.ConflictError
		compacted *storage.CompactedError
		unsealed  *storage.SealError
		premise   *storage.PremiseError
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
	case errors.As(err, &conflict), errors.As(err, &premise):
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
		return &fullError{Error(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error(), nil).(*apierrors.StatusError)}
	case errors.Is(err, storage.ErrUnavailable):
		return Error(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error(), nil)
	}
	return err
}

// fullError is a status for clients that is still storage.ErrFull to the server itself.
type fullError struct{ *apierrors.StatusError }

func (e *fullError) Unwrap() []error { return []error{e.StatusError, storage.ErrFull} }

// Failed is an error of the server without a reason.
func Failed(message string) error { return Error(http.StatusInternalServerError, "", message, nil) }

// Reloading is the answer while everything is loaded anew.
func Reloading() error {
	return apierrors.NewTooManyRequests("storage is (re)initializing", 1)
}

// ManyWait is the answer to a request that would have to wait while so many do already.
func ManyWait() error {
	return apierrors.NewTooManyRequests("Too many requests wait already, please try again later", 1)
}

var ErrModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// Of makes the Status of any error, within the bounds of one (bounds.go). One that says
// no reason has none, as in Kubernetes.
func Of(err error) *metav1.Status {
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		st := api.Status()
		if st.Status == "" {
			st.Status = metav1.StatusFailure
		}
		if st.Code == 0 {
			st.Code = http.StatusInternalServerError
		}
		return bounded(&st)
	}
	return bounded(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()})
}
