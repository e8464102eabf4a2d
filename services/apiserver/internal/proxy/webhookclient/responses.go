package webhookclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/request"
)

const (
	// largeResponse is the size in bytes from which responses are decoded one at a time.
	largeResponse = request.LargeBody
	// hugeResponse is the size in bytes from which reading a response needs a slot. A reader that
	// holds a slot must receive that many bytes within responseTimeout.
	hugeResponse    = 1 << 20
	responseTimeout = 3 * time.Second
	// smallResponse is the size in bytes below which the number of values is not checked.
	smallResponse = 4 << 10
)

// ResponseLimiter bounds the memory and CPU for responses from one kind of webhook. Huge responses
// are read a few at a time, and large ones are decoded one at a time. A response that holds a slot
// waits only for its own webhook, which must keep sending. No webhook and no principal can occupy
// all slots: a principal can have any number of webhooks, and a webhook can be called for any
// number of principals. See limit.Queue.
type ResponseLimiter struct {
	// Timeout is how long a response that holds a slot may take for the next hugeResponse bytes.
	Timeout time.Duration

	decoding *limit.Queue[string] // by principal
	slots    *limit.Queue[string] // by principal and by webhook
}

// NewResponseLimiter returns a limiter that reads slots huge responses at a time.
func NewResponseLimiter(slots int) *ResponseLimiter {
	return &ResponseLimiter{
		Timeout:  responseTimeout,
		slots:    limit.New[string](limit.Options{Size: slots, FairShare: true}),
		decoding: limit.New[string](limit.Options{Size: 1}),
	}
}

// LimitedResponse is the response to one call of a ResponseLimiter.
type LimitedResponse struct {
	limiter  *ResponseLimiter
	claim    limit.Claim[string]
	ctx      context.Context
	maxBytes int64
	cancel   context.CancelCauseFunc

	// Only the goroutine of the call uses the following fields.
	hasSlot     bool
	slotTimeout bool
	deadline    *time.Timer
}

// responseKey is the context key of a LimitedResponse.
type responseKey struct{}

// errSlow is the cause of canceling a response that holds a slot and does not keep sending.
var errSlow = errors.New("the response of the webhook is too slow")

// Start returns a context for one call with a client of NewClient or Webhooks. maxBytes bounds the
// response; 0 uses the limit of the client. The caller must call End after decoding.
func (l *ResponseLimiter) Start(ctx context.Context, webhook string, maxBytes int64) (context.Context, *LimitedResponse) {
	response := &LimitedResponse{
		limiter:  l,
		claim:    limit.Claim[string]{Key: request.Principal(ctx), SecondKey: "webhook " + webhook},
		maxBytes: maxBytes,
	}
	ctx, response.cancel = context.WithCancelCause(ctx)
	response.ctx = ctx
	return context.WithValue(ctx, responseKey{}, response), response
}

// End releases the slot of the response.
func (r *LimitedResponse) End() {
	if r.deadline != nil {
		r.deadline.Stop()
	}
	if r.hasSlot {
		r.hasSlot = false
		r.limiter.slots.Release(r.claim)
	}
	r.cancel(nil)
}

// SlotTimeout reports whether the response got no slot in time. This says nothing about the
// webhook.
func (r *LimitedResponse) SlotTimeout() bool { return r.slotTimeout }

// acquireSlot acquires a slot, or gives a response that has one more time for the next hugeResponse
// bytes. It does nothing for a nil response.
func (r *LimitedResponse) acquireSlot(ctx context.Context) error {
	if r == nil {
		return nil
	}
	if r.hasSlot { // hugeResponse more bytes have arrived
		r.deadline.Reset(r.limiter.Timeout)
		return nil
	}
	if err := r.limiter.slots.Acquire(ctx, r.claim); err != nil {
		r.slotTimeout = true
		return fmt.Errorf("too many large webhook responses in progress: %w", err)
	}
	r.hasSlot = true
	r.deadline = time.AfterFunc(r.limiter.Timeout, func() { r.cancel(errSlow) })
	return nil
}

// DecodeInto passes the body of a result to decode. A body with more than maxValues values, or a
// long body that is not JSON, is an error: "{}," takes three bytes in the body but hundreds in
// memory.
func (r *LimitedResponse) DecodeInto(result rest.Result, maxValues int, decode func(raw []byte) error) error {
	if r.deadline != nil {
		r.deadline.Stop() // the response is complete
	}
	raw, err := result.Raw()
	if len(raw) >= largeResponse {
		c := limit.Claim[string]{Key: r.claim.Key}
		if err := r.limiter.decoding.Acquire(r.ctx, c); err != nil {
			r.slotTimeout = true
			return fmt.Errorf("too many large webhook responses in progress: %w", err)
		}
		defer r.limiter.decoding.Release(c)
	}
	invalid := CheckResponse(raw, maxValues)
	switch {
	case err != nil && invalid == nil:
		return result.Error()
	case err != nil:
		return err
	case invalid != nil:
		return invalid
	}
	return decode(raw)
}

// ErrTooManyValues is wrapped by errors about responses that are not decoded because they have too
// many values.
var ErrTooManyValues = errors.New("the response has too many values")

// CheckResponse rejects a response that has more than maxValues values, or that is long and not
// JSON.
func CheckResponse(raw []byte, maxValues int) error {
	if len(raw) < smallResponse {
		return nil
	}
	if !request.ValuesWithin(raw, maxValues) {
		return fmt.Errorf("%w: the limit is %d", ErrTooManyValues, maxValues)
	}
	var ignored json.RawMessage
	if err := json.Unmarshal(raw, &ignored); err != nil {
		return fmt.Errorf("json parse error: %w", err)
	}
	return nil
}

// maxReviewValues bounds the values in a review response.
const maxReviewValues = 1 << 16

// Decode decodes a JSON response. It rejects responses with too many values, and decodes large
// responses one at a time. Field names are case-sensitive: "Allowed" is not the field "allowed".
func (s *Service) Decode(raw []byte, into any) error {
	if len(raw) >= largeResponse {
		s.decoding.Lock()
		defer s.decoding.Unlock()
	}
	if err := CheckResponse(raw, maxReviewValues); err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, into)
}

// limitedTransport bounds response bodies, and makes huge ones wait for a slot.
type limitedTransport struct {
	http.RoundTripper
	limit int64
}

// RoundTrip implements http.RoundTripper.
func (t *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(withBodyParts(r))
	if err == nil {
		response, _ := r.Context().Value(responseKey{}).(*LimitedResponse)
		limit := t.limit
		if response != nil && response.maxBytes > 0 {
			limit = min(limit, response.maxBytes)
		}
		resp.Body = &limitedBody{ReadCloser: resp.Body, ctx: r.Context(), response: response, left: limit, untilSlot: hugeResponse}
	}
	return resp, err
}

// limitedBody is the response body of limitedTransport.
type limitedBody struct {
	io.ReadCloser
	ctx       context.Context
	response  *LimitedResponse // nil without a ResponseLimiter
	left      int64            // bytes until the limit
	untilSlot int64            // bytes until the body needs a slot or more time
}

// errTooLong replaces the rest of a body that exceeds the limit.
var errTooLong = errors.New("the response of the webhook is too long")

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.untilSlot -= int64(n)
	b.left -= int64(n)
	if b.left < 0 {
		return n, errTooLong
	}
	if err != nil && errors.Is(context.Cause(b.ctx), errSlow) { // also for io.EOF, which the cancellation may have caused
		return n, errSlow
	}
	if b.untilSlot < 0 && b.response != nil {
		b.untilSlot = hugeResponse
		if err := b.response.acquireSlot(b.ctx); err != nil {
			return n, err
		}
	}
	return n, err
}
