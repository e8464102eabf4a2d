package webhooks

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"binnacle/libs/limit"
)

const (
	// failureThreshold is the number of consecutive failures that open a breaker.
	failureThreshold = 3
	// probeInterval is the time between probes of a webhook whose breaker is open.
	probeInterval = time.Second
)

// ReachabilityEvent reports that a webhook became unreachable or reachable.
type ReachabilityEvent struct {
	Kind, Configuration, Webhook string
	Reachable                    bool
	Reason                       string
}

// breakers holds what all breakers of a plugin share.
type breakers struct {
	ctx      context.Context // canceled to stop probes
	probes   *sync.WaitGroup
	notify   func(context.Context, ReachabilityEvent)
	metrics  *Metrics
	hookType string
	log      *slog.Logger
}

// breaker avoids the repeated cost of timeouts of a webhook that cannot be reached. Only failed
// connections count, because the object may be the cause of a request without response, and must
// not affect the objects of other users.
type breaker struct {
	*limit.Breaker
	breakers
	hook   *hook
	log    *slog.Logger
	retire context.CancelFunc
	// closed ends the open state in the metrics; nil if the breaker is not open.
	closed atomic.Pointer[func()]
}

// new returns the breaker of a webhook.
func (b breakers) new(h *hook) *breaker {
	out := &breaker{breakers: b, hook: h}
	out.log = b.log.With("configuration", h.configuration, "webhook", h.name, "refuses", !h.ignore)
	var ctx context.Context
	ctx, out.retire = context.WithCancel(b.ctx)
	out.Breaker = limit.NewBreaker(ctx, b.probes, limit.BreakerOptions{
		Threshold: failureThreshold, Interval: probeInterval, Probe: h.probe, OnChange: out.changed,
	})
	context.AfterFunc(ctx, out.recordClosed)
	return out
}

// kind returns the kind of the configuration.
func (b *breaker) kind() string {
	if b.hookType == typeMutating {
		return "MutatingWebhookConfiguration"
	}
	return "ValidatingWebhookConfiguration"
}

// check returns a failure if the breaker is open.
func (b *breaker) check(h *hook) error {
	err := b.Open()
	if err == nil {
		return nil
	}
	f := newFailure(h, err)
	f.open = true
	b.metrics.skipped(h.name, b.hookType)
	return f
}

// record applies the outcome of a call.
func (b *breaker) record(result outcome, reason error) {
	if result != unreachable {
		b.Succeeded()
	} else if b.Failed(reason) == 1 {
		b.log.Warn("failed to call admission webhook", "error", reason)
	}
}

// changed reports that the breaker has opened or closed.
func (b *breaker) changed(ctx context.Context, reason error) {
	notice := ReachabilityEvent{Kind: b.kind(), Configuration: b.hook.configuration, Webhook: b.hook.name, Reachable: reason == nil}
	if reason == nil {
		b.recordClosed()
		b.log.Info("admission webhook reachable again")
	} else {
		notice.Reason = reason.Error()
		closed := b.metrics.opened(b.hook.name, b.hookType)
		b.closed.Store(&closed)
		if ctx.Err() != nil {
			b.recordClosed()
		}
		b.log.Error("admission webhook unreachable; not called until it responds", "error", reason)
	}
	b.notify(ctx, notice)
}

func (b *breaker) recordClosed() {
	if closed := b.closed.Swap(nil); closed != nil {
		(*closed)()
	}
}
