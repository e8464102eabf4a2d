package webhooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

var errNoAddress = errors.New("webhook configuration must have either service or URL")

// call asks a webhook. The error is a *failure when it could not be asked, a
// *denial when it refused.
func (h *hook) call(ctx context.Context, q *question, mutating bool) (*verdict, error) {
	if h.err != nil {
		return nil, newFailure(h, h.err)
	}
	if err := h.caller.breaker.check(h); err != nil {
		return nil, err
	}
	uid := types.UID(uuid.NewString())
	answer, answered, err := h.send(ctx, q.body(h.version, uid, q.dryRun))
	switch {
	case answered:
		h.caller.breaker.answered()
	case ctx.Err() == nil: // else the client went, or its time is over: that says nothing of the webhook
		h.caller.breaker.failed(h, err, q)
	}
	if err != nil {
		return nil, newFailure(h, err)
	}
	v, err := judge(answer, uid, mutating)
	if err != nil {
		return nil, newFailure(h, fmt.Errorf("received invalid webhook response: %w", err))
	}
	return v, nil
}

// send sends a review. answered tells that there was an answer, good or not,
// within the time of the webhook.
func (h *hook) send(ctx context.Context, body []byte) (answer runtime.Object, answered bool, err error) {
	client, err := h.caller.connect()
	if err != nil {
		return nil, true, fmt.Errorf("could not get REST client: %w", err)
	}
	own, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	r := client.Post().Body(body).SetHeader("Content-Type", "application/json")
	if left := timeLeft(own); left > 0 {
		r.Timeout(left)
	}
	answer = newAnswer(h.version)
	result := r.Do(own)
	status := 0
	result.StatusCode(&status)
	if err = result.Into(answer); err != nil {
		return nil, status != 0 && !errors.Is(err, context.DeadlineExceeded), fmt.Errorf("failed to call webhook: %w", err)
	}
	return answer, true, nil
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
