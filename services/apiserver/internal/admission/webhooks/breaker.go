package webhooks

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// failuresInARow open a breaker.
	failuresInARow = 3
	// probeInterval is between questions to a webhook whose breaker is open.
	probeInterval = time.Second
)

// Notice tells of a webhook that no longer answers, or answers again.
type Notice struct {
	Kind, Configuration, Webhook string
	Answers                      bool
	Reason                       string
}

// breakers are what all breakers of a plugin have in common.
type breakers struct {
	ctx     context.Context // ends probes
	probes  *sync.WaitGroup
	notify  func(context.Context, Notice)
	metrics *Metrics
	sort    string
	log     *slog.Logger
}

// breaker keeps a webhook that does not answer from costing its time-out again
// and again. Closed, it counts failures in a row; open, nothing is asked but by
// its probe.
type breaker struct {
	breakers
	configuration, webhook string
	ctx                    context.Context
	retire                 context.CancelFunc

	mu       sync.Mutex // a leaf
	failures int
	open     bool
	reason   error // of the last failure
}

func (b breakers) new(h *hook) *breaker {
	out := &breaker{breakers: b, configuration: h.configuration, webhook: h.name}
	out.ctx, out.retire = context.WithCancel(b.ctx)
	return out
}

// kind of the configuration.
func (b *breaker) kind() string {
	if b.sort == sortMutating {
		return "MutatingWebhookConfiguration"
	}
	return "ValidatingWebhookConfiguration"
}

// check refuses when the breaker is open.
func (b *breaker) check(h *hook) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return nil
	}
	f := newFailure(h, b.reason)
	f.open = true
	b.metrics.shortened(h.name, b.sort)
	return f
}

// answered notes an answer to a request.
func (b *breaker) answered() {
	b.mu.Lock()
	b.failures = 0
	b.mu.Unlock()
}

// failed notes that a webhook did not answer; what it was asked is what it will
// be probed with.
func (b *breaker) failed(h *hook, reason error, q *question) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reason = reason
	b.failures++
	switch {
	case b.open:
	case b.failures == 1:
		b.log.Warn("admission webhook does not answer", "configuration", b.configuration, "webhook", b.webhook, "refuses", !h.ignore, "error", reason)
	case b.failures >= failuresInARow && b.ctx.Err() == nil:
		b.open = true
		b.probes.Add(1)
		go b.probe(h, q)
	}
}

// probe asks a webhook until it answers, or is configured no more.
func (b *breaker) probe(h *hook, q *question) {
	defer b.probes.Done()
	b.metrics.opened(h.name, b.sort, 1)
	defer b.metrics.opened(h.name, b.sort, -1)
	b.mu.Lock()
	reason := b.reason.Error()
	b.mu.Unlock()
	b.log.Error("admission webhook is not called until it answers again", "configuration", b.configuration, "webhook", b.webhook, "refuses", !h.ignore, "error", reason)
	b.notify(b.ctx, Notice{Kind: b.kind(), Configuration: b.configuration, Webhook: b.webhook, Reason: reason})
	t := time.NewTicker(probeInterval)
	defer t.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-t.C:
		}
		_, answered, err := h.send(b.ctx, q.body(h.version, types.UID(uuid.NewString()), true))
		b.mu.Lock()
		if answered {
			b.open, b.failures = false, 0
		} else if b.ctx.Err() == nil {
			b.reason = err
		}
		b.mu.Unlock()
		if answered {
			b.log.Info("admission webhook answers again", "configuration", b.configuration, "webhook", b.webhook)
			b.notify(b.ctx, Notice{Kind: b.kind(), Configuration: b.configuration, Webhook: b.webhook, Answers: true})
			return
		}
	}
}
