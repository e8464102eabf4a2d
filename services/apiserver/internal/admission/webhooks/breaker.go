package webhooks

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// failureThreshold is the number of consecutive failures that open a breaker.
	failureThreshold = 3
	// probeInterval is the time between probes of a webhook whose breaker is open.
	probeInterval = time.Second
	// trialAfter is the time after the last call from which the next request of an origin without
	// responses is sent, even if no dry run succeeded.
	trialAfter = 30 * time.Second
	// maxOrigins bounds the origins whose failures are counted.
	maxOrigins = 1024
)

// Notice reports that a webhook became unreachable or reachable.
type Notice struct {
	Kind, Configuration, Webhook string
	Reachable                    bool
	Reason                       string
}

// breakers holds what all breakers of a plugin share.
type breakers struct {
	ctx      context.Context // canceled to stop probes
	probes   *sync.WaitGroup
	notify   func(context.Context, Notice)
	metrics  *Metrics
	hookType string
	log      *slog.Logger
	now      func() time.Time
}

// breaker avoids the repeated cost of timeouts of a webhook that does not respond. While closed, it
// counts consecutive failures.
//
// A failed connection does not depend on the object. It opens the breaker for all requests until a
// probe connects. If a request was sent and got no response, the object may be the cause, and must
// not affect the objects of other users. Such failures are therefore counted per origin: the
// namespace of the request, or its user if it has none. They count only for webhooks whose
// failurePolicy is Fail.
type breaker struct {
	breakers
	configuration, webhook string
	ctx                    context.Context
	retire                 context.CancelFunc

	mu       sync.Mutex // a leaf
	failures int
	open     bool
	reason   error // last failure
	origins  *lru.Cache[string, *originFailures]
}

// originFailures counts the requests of one origin that got no response. The mutex of the breaker
// guards it.
type originFailures struct {
	failures int
	reason   error
	// lastCall is the time of the last call.
	lastCall time.Time
	probing  bool
}

func (b breakers) new(h *hook) *breaker {
	out := &breaker{breakers: b, configuration: h.configuration, webhook: h.name}
	out.ctx, out.retire = context.WithCancel(b.ctx)
	if out.now == nil {
		out.now = time.Now
	}
	out.origins, _ = lru.New[string, *originFailures](maxOrigins) // the size is valid
	return out
}

// kind returns the kind of the configuration.
func (b *breaker) kind() string {
	if b.hookType == typeMutating {
		return "MutatingWebhookConfiguration"
	}
	return "ValidatingWebhookConfiguration"
}

// check returns a failure if the breaker is open for a request.
func (b *breaker) check(h *hook, q *reviewRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	reason := b.reason
	if !b.open {
		s, ok := b.origins.Get(q.origin)
		if !ok || s.failures < failureThreshold || b.allowTrial(h, q, s) {
			return nil
		}
		reason = s.reason
	}
	f := newFailure(h, reason)
	f.open = true
	b.metrics.skipped(h.name, b.hookType)
	return f
}

// allowTrial reports whether a request from an origin with failures may be sent. From time to time
// it also starts a dry run in the background, whose response no request waits for. b.mu must be
// held.
func (b *breaker) allowTrial(h *hook, q *reviewRequest, s *originFailures) bool {
	since := b.now().Sub(s.lastCall)
	switch {
	case s.probing || since < probeInterval || b.ctx.Err() != nil:
		return false
	case since >= trialAfter || !h.dryRun: // a trial without dry run has side effects
		s.lastCall = b.now()
		return true
	}
	s.probing, s.lastCall = true, b.now()
	trial := *q
	trial.dryRun = true
	b.probes.Add(1)
	go func() {
		defer b.probes.Done()
		_, how, err := h.send(b.ctx, &trial, types.UID(uuid.NewString()), true)
		b.mu.Lock()
		s.probing = false
		b.mu.Unlock()
		b.record(h, q, how, err)
	}()
	return false
}

// record applies the outcome of a call.
func (b *breaker) record(h *hook, q *reviewRequest, how outcome, reason error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch how {
	case responded:
		b.failures = 0
		b.origins.Remove(q.origin)
	case noResponse:
		b.failures = 0
		if !h.ignore {
			b.recordNoResponse(h, q, reason)
		}
	case unreachable:
		b.recordUnreachable(h, reason)
	}
}

// recordNoResponse counts a request that was sent and got no response. b.mu must be held.
func (b *breaker) recordNoResponse(h *hook, q *reviewRequest, reason error) {
	s, ok := b.origins.Get(q.origin)
	if !ok {
		s = &originFailures{}
		b.origins.Add(q.origin, s)
	}
	s.failures++
	s.reason, s.lastCall = reason, b.now()
	if s.failures == 1 || s.failures == failureThreshold {
		b.log.Warn("admission webhook did not respond", "configuration", b.configuration, "webhook", b.webhook,
			"from", q.origin, "refuses at once", s.failures == failureThreshold, "error", reason)
	}
}

// recordUnreachable counts a failed connection. b.mu must be held.
func (b *breaker) recordUnreachable(h *hook, reason error) {
	b.reason = reason
	b.failures++
	switch {
	case b.open:
	case b.failures == 1:
		b.log.Warn("admission webhook cannot be reached", "configuration", b.configuration, "webhook", b.webhook, "refuses", !h.ignore, "error", reason)
	case b.failures >= failureThreshold && b.ctx.Err() == nil:
		b.open = true
		b.probes.Add(1)
		go b.probe(h, reason.Error())
	}
}

// probe connects to a webhook periodically until it succeeds or the webhook is removed.
func (b *breaker) probe(h *hook, reason string) {
	defer b.probes.Done()
	defer b.metrics.opened(h.name, b.hookType)()
	b.log.Error("admission webhook is not called until it can be reached again", "configuration", b.configuration, "webhook", b.webhook, "refuses", !h.ignore, "error", reason)
	b.notify(b.ctx, Notice{Kind: b.kind(), Configuration: b.configuration, Webhook: b.webhook, Reason: reason})
	t := time.NewTicker(probeInterval)
	defer t.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-t.C:
		}
		err := h.probe(b.ctx)
		b.mu.Lock()
		if err == nil {
			b.open, b.failures = false, 0
		} else if b.ctx.Err() == nil {
			b.reason = err
		}
		b.mu.Unlock()
		if err == nil {
			b.log.Info("admission webhook can be reached again", "configuration", b.configuration, "webhook", b.webhook)
			b.notify(b.ctx, Notice{Kind: b.kind(), Configuration: b.configuration, Webhook: b.webhook, Reachable: true})
			return
		}
	}
}
