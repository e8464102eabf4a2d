package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

var errNoAddress = errors.New("webhook configuration must have either service or URL")

// call sends a review to the webhook and returns its response, which may deny the request. An error
// is a *failure. mutating permits patches in the response.
func (h *hook) call(ctx context.Context, review *reviewRequest, mutating bool) (*reviewResponse, error) {
	if h.err != nil {
		return nil, newFailure(h, h.err)
	}
	if err := h.caller.breaker.check(h); err != nil {
		return nil, err
	}
	uid := types.UID(uuid.NewString())
	hookType := "validating"
	if mutating {
		hookType = "mutating"
	}
	ctx, span := tracing.Start(
		ctx,
		"Call "+hookType+" webhook",
		func() []attribute.KeyValue { return h.spanAttributes(review, uid) },
	)
	defer span.End()
	response, result, err := h.send(ctx, review, uid, mutating)
	// If the client has disconnected or the request has timed out, a missing response is not a
	// fault of the webhook.
	if result == responded || ctx.Err() == nil {
		h.caller.breaker.record(result, err)
	}
	if err != nil {
		return nil, newFailure(h, err)
	}
	return response, nil
}

// spanAttributes returns the attributes of a call in traces.
func (h *hook) spanAttributes(review *reviewRequest, uid types.UID) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("configuration", h.configuration),
		attribute.String("webhook", h.name),
		attribute.String("resource", review.resource),
		attribute.String("subresource", review.subresource),
		attribute.String("operation", review.operation),
		attribute.String("UID", string(uid)),
	}
}

// outcome is the stage that a call reached.
type outcome int

const (
	// unreachable means that no connection could be established.
	unreachable outcome = iota
	// noResponse means that there was a connection, but the webhook did not respond in time or
	// closed it.
	noResponse
	// responded means that the webhook sent a response, valid or not, or that the call failed for a
	// reason that is not the webhook's.
	responded
)

// send sends a review, and decodes and validates the response.
func (h *hook) send(
	ctx context.Context,
	request *reviewRequest,
	uid types.UID,
	mutating bool,
) (response *reviewResponse, result outcome, err error) {
	client, err := h.caller.connect()
	if err != nil {
		return nil, responded, fmt.Errorf("could not get REST client: %w", err)
	}
	callCtx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	callCtx, limited := h.caller.clients.responses.Start(callCtx, h.caller.key, 0)
	defer limited.End()
	var connected atomic.Bool
	callCtx = traceConnection(callCtx, &connected)
	head, parts := request.body(h.version, uid)
	req := client.Post().Body(head).SetHeader("Content-Type", "application/json")
	if remaining := timeLeft(callCtx); remaining > 0 {
		req.Timeout(remaining)
	}
	restResult := req.Do(webhookclient.WithBodyParts(callCtx, parts...))
	status := 0 // HTTP status code; stays 0 without a response
	restResult.StatusCode(&status)
	var invalid error
	err = limited.DecodeInto(restResult, MaxValues, func([]byte) error {
		review := newReview(h.version)
		if err := restResult.Into(review); err != nil {
			return err
		}
		response, invalid = parseResponse(review, uid, mutating)
		return nil
	})
	switch {
	case invalid != nil:
		return nil, responded, fmt.Errorf("received invalid webhook response: %w", invalid)
	case err == nil:
		return response, responded, nil
	case limited.SlotTimeout(), status != 0 && !errors.Is(err, context.DeadlineExceeded):
		result = responded
	case connected.Load():
		result = noResponse
	}
	return nil, result, fmt.Errorf("failed to call webhook: %w", err)
}

// traceConnection returns a context for an HTTP request. When the request gets a connection, it
// sets connected.
func traceConnection(ctx context.Context, connected *atomic.Bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
}

// maxProbeResponse bounds the response to a probe in bytes. The response is ignored.
const maxProbeResponse = 16 << 10

// probe returns an error if no connection to the webhook can be established.
func (h *hook) probe(ctx context.Context) error {
	client, err := h.caller.connect()
	if err != nil {
		return nil // calls are not prevented, so that they return this error
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	ctx, limited := h.caller.clients.responses.Start(ctx, h.caller.key, maxProbeResponse)
	defer limited.End()
	var connected atomic.Bool
	_, err = client.Get().Do(traceConnection(ctx, &connected)).Raw()
	if connected.Load() {
		return nil // the response does not matter
	}
	return err
}

// timeLeft returns the time until the deadline of ctx, rounded up to whole seconds, or 0 if it has
// no deadline.
func timeLeft(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(deadline)
	if whole := left.Truncate(time.Second); whole != left {
		left = whole + time.Second
	}
	return left
}

// failure is the error of a call that failed or was prevented by the breaker. The failurePolicy of
// the webhook decides whether the request is rejected.
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

// newFailure returns the failure of a call of h for a reason.
func newFailure(h *hook, reason error) *failure {
	code := http.StatusServiceUnavailable
	var status *apierrors.StatusError
	if errors.As(reason, &status) {
		code = int(status.ErrStatus.Code)
	}
	return &failure{webhook: h.name, reason: reason, code: code}
}

// retryAfter is the Retry-After, in seconds, of rejections because of an open breaker.
const retryAfter = 1

// status returns the failure as a Status for the client.
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

// newDenial returns the rejection by a webhook. result is the Status in its response, or nil.
func newDenial(webhook string, result *metav1.Status) *denial {
	if result == nil {
		result = &metav1.Status{}
	}
	out := *result
	out.Status = metav1.StatusFailure
	if out.Code < http.StatusBadRequest || out.Code > 599 {
		out.Code = http.StatusBadRequest
	}
	message := fmt.Sprintf("admission webhook %q denied the request", webhook)
	switch {
	case out.Message != "":
		out.Message = message + ": " + out.Message
	case out.Reason != "":
		out.Message = message + ": " + string(out.Reason)
	default:
		out.Message = message + " without explanation"
	}
	return &denial{status: &apierrors.StatusError{ErrStatus: out}}
}
