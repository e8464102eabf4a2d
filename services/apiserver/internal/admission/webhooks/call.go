package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

var errNoAddress = errors.New("webhook configuration must have either service or URL")

// call asks a webhook. The error is a *failure when it could not be asked, a
// *denial when it refused.
func (h *hook) call(ctx context.Context, q *question, mutating bool) (*verdict, error) {
	if h.err != nil {
		return nil, newFailure(h, h.err)
	}
	if err := h.caller.breaker.check(h, q); err != nil {
		return nil, err
	}
	uid := types.UID(uuid.NewString())
	sort := "validating"
	if mutating {
		sort = "mutating"
	}
	ctx, span := tracing.Start(ctx, "Call "+sort+" webhook", func() []attribute.KeyValue { return h.told(q, uid) })
	defer span.End()
	v, how, err := h.send(ctx, q, uid, mutating)
	if how == answered || ctx.Err() == nil { // else the client went, or its time is over: that says nothing of the webhook
		h.caller.breaker.note(h, q, how, err)
	}
	if err != nil {
		return nil, newFailure(h, err)
	}
	return v, nil
}

// told is what traces tell of a question.
func (h *hook) told(q *question, uid types.UID) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("configuration", h.configuration), attribute.String("webhook", h.name), attribute.String("resource", q.resource),
		attribute.String("subresource", q.subresource), attribute.String("operation", q.operation), attribute.String("UID", string(uid)),
	}
}

// reached tells how far a question got.
type reached int

const (
	// unreached: there was no connection on which it could have been sent.
	unreached reached = iota
	// asked: it was sent, and there was no answer in the webhook's time.
	asked
	// answered: there was an answer, good or not.
	answered
)

// send sends a review and judges the answer.
func (h *hook) send(ctx context.Context, q *question, uid types.UID, mutating bool) (v *verdict, how reached, err error) {
	client, err := h.caller.connect()
	if err != nil {
		return nil, answered, fmt.Errorf("could not get REST client: %w", err)
	}
	own, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	own, came := h.caller.clients.answers.Begin(own, h.caller.key, 0)
	defer came.End()
	var sent atomic.Bool
	own = httptrace.WithClientTrace(own, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	head, rest := q.body(h.version, uid, q.dryRun)
	r := client.Post().Body(head).SetHeader("Content-Type", "application/json")
	if left := timeLeft(own); left > 0 {
		r.Timeout(left)
	}
	result := r.Do(webhookclient.WithParts(own, rest...))
	status := 0
	result.StatusCode(&status)
	var bad error
	err = came.Into(result, maxValues, func([]byte) error {
		answer := newAnswer(h.version)
		if err := result.Into(answer); err != nil {
			return err
		}
		v, bad = judge(answer, uid, mutating)
		return nil
	})
	switch {
	case bad != nil:
		return nil, answered, fmt.Errorf("received invalid webhook response: %w", bad)
	case err == nil:
		return v, answered, nil
	case came.Crowded(), status != 0 && !errors.Is(err, context.DeadlineExceeded):
		how = answered
	case sent.Load():
		how = asked
	}
	return nil, how, fmt.Errorf("failed to call webhook: %w", err)
}

// maxProbe bounds what is read of the answer to a question that is none, which says nothing.
const maxProbe = 16 << 10

// reach tells whether a webhook can be connected to.
func (h *hook) reach(ctx context.Context) error {
	client, err := h.caller.connect()
	if err != nil {
		return nil // which is told to those who ask
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	ctx, came := h.caller.clients.answers.Begin(ctx, h.caller.key, maxProbe)
	defer came.End()
	var sent atomic.Bool
	_, err = client.Get().Do(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})).Raw()
	if sent.Load() {
		return nil // whatever it says to a question that is none
	}
	return err
}

// timeLeft is the time until a deadline in whole seconds, the last one begun.
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
