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
	// failureThreshold is the number of consecutive failures to connect that open a breaker.
	failureThreshold = 3
	// probeInterval is the time between probes of a webhook whose breaker is open.
	probeInterval = time.Second
)

// ReachabilityEvent reports that a webhook became unreachable or reachable again.
type ReachabilityEvent struct {
	Kind          string // of the configuration
	Configuration string // name
	Webhook       string // name
	Reachable     bool
	Reason        string // error of the last attempt; empty if the webhook is reachable
}

// breakerFactory creates the breakers of a plugin. Its fields are common to all of them.
type breakerFactory struct {
	ctx      context.Context // canceled to stop probes
	probes   *sync.WaitGroup
	notify   func(context.Context, ReachabilityEvent)
	metrics  *Metrics
	hookType string
	log      *slog.Logger
}

// breaker rejects calls of a webhook that cannot be reached, so that each request does not wait for
// a timeout. Only failed connections count. If the webhook was reached but did not respond, the
// cause may be the object in the request, which must not affect the objects of other users.
type breaker struct {
	*limit.Breaker
	breakerFactory
	hook *hook
	log  *slog.Logger
	// retire stops probes. It is called when the webhook is no longer configured.
	retire context.CancelFunc
	// countClosed decrements the metric of open breakers; nil if the breaker is not open.
	countClosed atomic.Pointer[func()]
}

// newBreaker returns the breaker of a webhook.
func (b breakerFactory) newBreaker(h *hook) *breaker {
	out := &breaker{breakerFactory: b, hook: h}
	out.log = b.log.With("configuration", h.configuration, "webhook", h.name, "refuses", !h.ignore)
	var ctx context.Context
	ctx, out.retire = context.WithCancel(b.ctx)
	out.Breaker = limit.NewBreaker(ctx, b.probes, limit.BreakerOptions{
		Threshold: failureThreshold, Interval: probeInterval, Probe: h.probe, OnChange: out.stateChanged,
	})
	context.AfterFunc(ctx, out.recordClosed)
	return out
}

// configurationKind returns the kind of the webhook configuration.
func (b *breaker) configurationKind() string {
	if b.hookType == typeMutating {
		return "MutatingWebhookConfiguration"
	}
	return "ValidatingWebhookConfiguration"
}

// check returns a *failure if the breaker is open.
func (b *breaker) check(h *hook) error {
	err := b.Open()
	if err == nil {
		return nil
	}
	f := newFailure(h, err)
	f.open = true
	b.metrics.observeSkipped(h.name, b.hookType)
	return f
}

// record counts the outcome of a call. reason is the error of the call, or nil.
func (b *breaker) record(result outcome, reason error) {
	if result != unreachable {
		b.Succeeded()
	} else if b.Failed(reason) == 1 {
		b.log.Warn("failed to call admission webhook", "error", reason)
	}
}

// stateChanged logs and publishes that the breaker has opened, for a reason, or closed, if reason
// is nil. ctx is canceled when the breaker is retired.
func (b *breaker) stateChanged(ctx context.Context, reason error) {
	event := ReachabilityEvent{
		Kind:          b.configurationKind(),
		Configuration: b.hook.configuration,
		Webhook:       b.hook.name,
		Reachable:     reason == nil,
	}
	if reason == nil {
		b.recordClosed()
		b.log.Info("admission webhook reachable again")
	} else {
		event.Reason = reason.Error()
		countClosed := b.metrics.observeOpened(b.hook.name, b.hookType)
		b.countClosed.Store(&countClosed)
		if ctx.Err() != nil { // retired meanwhile, so that newBreaker's AfterFunc may have run already
			b.recordClosed()
		}
		b.log.Error("admission webhook unreachable; not called until it responds", "error", reason)
	}
	b.notify(ctx, event)
}

// recordClosed records in the metrics that the breaker is no longer open. It does so once per
// opening.
func (b *breaker) recordClosed() {
	if countClosed := b.countClosed.Swap(nil); countClosed != nil {
		(*countClosed)()
	}
}
