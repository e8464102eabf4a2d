package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/storage"
)

// statusError is a Status as an error.
func statusError(code int, reason metav1.StatusReason, message string, details *metav1.StatusDetails) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, Details: details,
	}}
}

// Errors of paths and methods, with the texts of Kubernetes.
func errNoResource() error {
	return statusError(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource", &metav1.StatusDetails{})
}

func errMethod() error {
	return statusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource", &metav1.StatusDetails{})
}

func errNoRepresentation(types []string) error {
	return statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "406: Not Acceptable\n\nAvailable representations: "+joinComma(types), &metav1.StatusDetails{})
}

func errNotAcceptable(types []string) error {
	return statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media types are accepted: "+joinComma(types), nil)
}

func errBodyType(types []string) error {
	return statusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "the body of the request was in an unknown format - accepted media types include: "+joinComma(types), nil)
}

func errPatchType() error {
	return statusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "415: Unsupported Media Type", &metav1.StatusDetails{})
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

// errTooLargeVersion answers a read at a version that has not come to be within
// the time that a read waits (specification: "Errors").
func errTooLargeVersion(asked, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// expiredVersion is the message of a read of history that is no longer kept.
func expiredVersion(asked, oldest int64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", asked, oldest))
}

// objectRef names an object in messages.
type objectRef struct {
	gr   schema.GroupResource
	name string
}

func refOf(k *registry.Kind, name string) objectRef { return objectRef{k.GroupResource(), name} }

// translate turns an error of the store into the Status error that clients know.
// Errors that are one already pass.
func (ref objectRef) translate(err error) error {
	var (
		api       apierrors.APIStatus
		exists    *storage.ExistsError
		conflict  *storage.ConflictError
		compacted *storage.CompactedError
		future    *storage.FutureError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &api):
		return err
	case errors.Is(err, storage.ErrNotFound):
		return apierrors.NewNotFound(ref.gr, ref.name)
	case errors.As(err, &exists):
		return apierrors.NewAlreadyExists(ref.gr, ref.name)
	case errors.As(err, &conflict):
		return apierrors.NewConflict(ref.gr, ref.name, errModified)
	case errors.As(err, &compacted):
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	case errors.As(err, &future):
		return apierrors.NewResourceExpired(fmt.Sprintf("the resourceVersion for the provided list is not available: %v", future))
	case errors.Is(err, storage.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError("etcdserver: request is too large")
	case errors.Is(err, context.DeadlineExceeded):
		return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within the allowed duration: %v", err), 0)
	case errors.Is(err, context.Canceled):
		return statusError(499, metav1.StatusReasonUnknown, "the client closed the request", nil)
	case errors.Is(err, storage.ErrUnavailable):
		return statusError(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error(), nil)
	}
	return err
}

var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// statusOf makes the Status of any error.
func statusOf(err error) *metav1.Status {
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		st := api.Status()
		if st.Status == "" {
			st.Status = metav1.StatusFailure
		}
		if st.Code == 0 {
			st.Code = http.StatusInternalServerError
		}
		return &st
	}
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Reason: metav1.StatusReasonInternalError, Message: err.Error(),
	}
}
