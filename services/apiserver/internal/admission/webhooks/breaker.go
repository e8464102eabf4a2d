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
	// failuresInARow open a breaker.
	failuresInARow = 3
	// probeInterval is between looks at a webhook whose breaker is open.
	probeInterval = time.Second
	// trialAfter is when a request is let through to a webhook that left those from
	// the same place unanswered, though nothing was found out meanwhile.
	trialAfter = 30 * time.Second
	// maxOrigins bounds the places that are told apart.
	maxOrigins = 1024
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
	now     func() time.Time
}

// breaker keeps a webhook that does not answer from costing its time-out again
// and again. Closed, it counts failures in a row.
//
// What cannot hang on the object, that there is no connection, opens it for
// everybody, until a probe connects. A question that was sent and not answered may be
// the object's fault, which its author must not make that of others: such failures
// count among the requests of one namespace (or of one user, of what is in none), and
// only for webhooks whose silence refuses.
type breaker struct {
	breakers
	configuration, webhook string
	ctx                    context.Context
	retire                 context.CancelFunc

	mu       sync.Mutex // a leaf
	failures int
	open     bool
	reason   error // of the last failure
	silent   *lru.Cache[string, *silence]
}

// silence is what came of questions from one place. The breaker's mu guards it.
type silence struct {
	failures int
	reason   error
	// looked is when the webhook was last asked.
	looked time.Time
	asking bool
}

func (b breakers) new(h *hook) *breaker {
	out := &breaker{breakers: b, configuration: h.configuration, webhook: h.name}
	out.ctx, out.retire = context.WithCancel(b.ctx)
	if out.now == nil {
		out.now = time.Now
	}
	out.silent, _ = lru.New[string, *silence](maxOrigins) // of a size that is one
	return out
}

// kind of the configuration.
func (b *breaker) kind() string {
	if b.sort == sortMutating {
		return "MutatingWebhookConfiguration"
	}
	return "ValidatingWebhookConfiguration"
}

// check refuses when the breaker is open for a question.
func (b *breaker) check(h *hook, q *question) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	reason := b.reason
	if !b.open {
		s, ok := b.silent.Get(q.origin)
		if !ok || s.failures < failuresInARow || b.letThrough(h, q, s) {
			return nil
		}
		reason = s.reason
	}
	f := newFailure(h, reason)
	f.open = true
	b.metrics.shortened(h.name, b.sort)
	return f
}

// letThrough tells whether a question from a silent place may be asked after all.
// Now and then it is asked aside, where nobody waits for the answer. The caller holds
// mu.
func (b *breaker) letThrough(h *hook, q *question, s *silence) bool {
	since := b.now().Sub(s.looked)
	switch {
	case s.asking || since < probeInterval || b.ctx.Err() != nil:
		return false
	case since >= trialAfter || !h.dryRun: // it must not be asked in vain
		s.looked = b.now()
		return true
	}
	s.asking, s.looked = true, b.now()
	trial := *q
	trial.dryRun = true
	b.probes.Add(1)
	go func() {
		defer b.probes.Done()
		_, how, err := h.send(b.ctx, &trial, types.UID(uuid.NewString()), true)
		b.mu.Lock()
		s.asking = false
		b.mu.Unlock()
		b.note(h, q, how, err)
	}()
	return false
}

// note takes up what came of a question.
func (b *breaker) note(h *hook, q *question, how reached, reason error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch how {
	case answered:
		b.failures = 0
		b.silent.Remove(q.origin)
	case asked:
		b.failures = 0
		if !h.ignore {
			b.unanswered(h, q, reason)
		}
	case unreached:
		b.failed(h, reason)
	}
}

// unanswered counts a question that was sent. The caller holds mu.
func (b *breaker) unanswered(h *hook, q *question, reason error) {
	s, ok := b.silent.Get(q.origin)
	if !ok {
		s = &silence{}
		b.silent.Add(q.origin, s)
	}
	s.failures++
	s.reason, s.looked = reason, b.now()
	if s.failures == 1 || s.failures == failuresInARow {
		b.log.Warn("admission webhook leaves a question unanswered", "configuration", b.configuration, "webhook", b.webhook,
			"from", q.origin, "refuses at once", s.failures == failuresInARow, "error", reason)
	}
}

// failed notes that a webhook could not be reached. The caller holds mu.
func (b *breaker) failed(h *hook, reason error) {
	b.reason = reason
	b.failures++
	switch {
	case b.open:
	case b.failures == 1:
		b.log.Warn("admission webhook cannot be reached", "configuration", b.configuration, "webhook", b.webhook, "refuses", !h.ignore, "error", reason)
	case b.failures >= failuresInARow && b.ctx.Err() == nil:
		b.open = true
		b.probes.Add(1)
		go b.probe(h, reason.Error())
	}
}

// probe looks whether a webhook can be reached again, until it is or is configured no
// more.
func (b *breaker) probe(h *hook, reason string) {
	defer b.probes.Done()
	defer b.metrics.opened(h.name, b.sort)()
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
		err := h.reach(b.ctx)
		b.mu.Lock()
		if err == nil {
			b.open, b.failures = false, 0
		} else if b.ctx.Err() == nil {
			b.reason = err
		}
		b.mu.Unlock()
		if err == nil {
			b.log.Info("admission webhook can be reached again", "configuration", b.configuration, "webhook", b.webhook)
			b.notify(b.ctx, Notice{Kind: b.kind(), Configuration: b.configuration, Webhook: b.webhook, Answers: true})
			return
		}
	}
}
