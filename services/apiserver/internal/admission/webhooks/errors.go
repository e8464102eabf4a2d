package webhooks

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failure is a failed call. The failurePolicy decides on the request.
type failure struct {
	webhook string
	reason  error
	// code is the status code in metrics.
	code int
	// open reports whether the breaker prevented the call.
	open bool
}

// Error implements error.
func (f *failure) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", f.webhook, f.reason)
}

// Unwrap returns the reason.
func (f *failure) Unwrap() error { return f.reason }

func newFailure(h *hook, reason error) *failure {
	code := http.StatusServiceUnavailable
	var status *apierrors.StatusError
	if errors.As(reason, &status) {
		code = int(status.ErrStatus.Code)
	}
	return &failure{webhook: h.name, reason: reason, code: code}
}

// retryAfter is the Retry-After of rejections by an open breaker, in seconds.
const retryAfter = 1

// status returns the error for the client.
func (f *failure) status() error {
	err := apierrors.NewInternalError(f)
	if f.open {
		err.ErrStatus.Details.RetryAfterSeconds = retryAfter
	}
	return err
}

// denial is the rejection of a request by a webhook.
type denial struct{ status *apierrors.StatusError }

// Error implements error.
func (d *denial) Error() string { return d.status.Error() }

// newDenial returns the rejection with the result of a webhook.
func newDenial(webhook string, result *metav1.Status) *denial {
	if result == nil {
		result = &metav1.Status{}
	}
	out := *result
	out.Status = metav1.StatusFailure
	if out.Code < http.StatusBadRequest || out.Code > 599 {
		out.Code = http.StatusBadRequest
	}
	said := fmt.Sprintf("admission webhook %q denied the request", webhook)
	switch {
	case out.Message != "":
		out.Message = said + ": " + out.Message
	case out.Reason != "":
		out.Message = said + ": " + string(out.Reason)
	default:
		out.Message = said + " without explanation"
	}
	return &denial{&apierrors.StatusError{ErrStatus: out}}
}
