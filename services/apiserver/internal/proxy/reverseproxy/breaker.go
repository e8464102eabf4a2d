package reverseproxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/request"
)

const (
	// failuresInARow is the number of consecutive failures that trigger a probe.
	failuresInARow = 3
	// suspectAfter is the wait of a request for a response that triggers a probe.
	suspectAfter = 5 * time.Second
	// seatFor is how long a request waits for a response before it releases its seats. Then it only
	// waits, and the limit of its server bounds the number of such requests.
	seatFor = time.Second
	// probeInterval is the interval between probes of an unresponsive server.
	probeInterval = time.Second
)

// Breaker bounds the cost of a server that does not respond, and its share of the requests in
// progress.
//
// Requests alone cannot open it, because a slow request may be its own fault. They trigger a probe
// of the server. The breaker opens when a probe fails and closes with the first successful one.
// When it opens, requests that wait for a response are canceled.
type Breaker struct {
	BreakerConfig
	ctx    context.Context // ends probes
	probes *sync.WaitGroup

	mu       sync.Mutex // leaf lock
	failures int
	looking  bool
	reason   error // the breaker is open while this is set
	under    int
	held     map[string]int // by user; no entry is 0
	waiting  map[*passage]bool
}

// BreakerConfig configures a Breaker.
type BreakerConfig struct {
	// Probe sends any request to the server.
	Probe func(context.Context) error
	// Most is the maximum number of requests in progress; 0 means no limit. Long-running requests
	// count until they are answered. A user may have at most as many requests as there are free
	// slots.
	Most int
	// Turned is called when the breaker opens, with the reason, and when it closes.
	Turned func(reason error)
}

// NewBreaker returns a closed breaker. Its probes end with ctx. The WaitGroup probes, which
// breakers may share, waits for them.
func NewBreaker(ctx context.Context, probes *sync.WaitGroup, c BreakerConfig) *Breaker {
	return &Breaker{BreakerConfig: c, ctx: ctx, probes: probes, held: map[string]int{}, waiting: map[*passage]bool{}}
}

// Open returns the reason why the breaker is open, or nil if it is closed.
func (b *Breaker) Open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reason
}

// passage is a request in progress.
type passage struct {
	of     *Breaker
	user   string
	long   bool
	timers [2]*time.Timer
	cancel context.CancelCauseFunc

	counted bool // guarded by the breaker's mu
}

// openError rejects requests to an unresponsive server.
type openError struct{ reason error }

func (e *openError) Error() string { return e.reason.Error() }
func (e *openError) Unwrap() error { return e.reason }

// errCrowded rejects a request when too many wait for the same server.
var errCrowded = errors.New("too many requests wait for the server")

// enter starts a request. If the breaker opens before the server responds, the context ends with an
// *openError as its cause. The caller must call leave.
func (b *Breaker) enter(ctx context.Context, user string, long bool) (context.Context, *passage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reason != nil {
		return nil, nil, &openError{b.reason}
	}
	if b.Most > 0 && b.held[user] >= b.Most-b.under {
		return nil, nil, errCrowded
	}
	p := &passage{of: b, user: user, long: long, counted: true}
	ctx, p.cancel = context.WithCancelCause(ctx)
	begun := ctx
	p.timers = [2]*time.Timer{time.AfterFunc(suspectAfter, b.suspect), time.AfterFunc(seatFor, func() { request.Begun(begun) })}
	b.under++
	b.held[user]++
	b.waiting[p] = true
	return ctx, p, nil
}

// answered records that the server has responded.
func (p *passage) answered() {
	p.stop()
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	delete(p.of.waiting, p)
	p.of.failures = 0
	if p.long {
		p.uncount()
	}
}

// failed records that the request could not be proxied.
func (p *passage) failed(reason error) {
	b := p.of
	b.mu.Lock()
	b.failures++
	look := b.failures >= failuresInARow
	b.mu.Unlock()
	if look {
		b.suspect()
	}
}

// leave ends the request.
func (p *passage) leave() {
	p.stop()
	p.of.mu.Lock()
	delete(p.of.waiting, p)
	p.uncount()
	p.of.mu.Unlock()
	p.cancel(nil)
}

func (p *passage) stop() {
	for _, t := range p.timers {
		t.Stop()
	}
}

// uncount releases the slot. The caller holds the breaker's mu.
func (p *passage) uncount() {
	if !p.counted {
		return
	}
	p.counted = false
	p.of.under--
	if p.of.held[p.user]--; p.of.held[p.user] == 0 {
		delete(p.of.held, p.user)
	}
}

// suspect starts probing the server unless a probe is running.
func (b *Breaker) suspect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looking || b.ctx.Err() != nil {
		return
	}
	b.looking = true
	b.probes.Go(b.look)
}

// look probes the server until it responds.
func (b *Breaker) look() {
	for {
		err := b.Probe(b.ctx)
		if b.ctx.Err() != nil || b.found(err) {
			return
		}
		select {
		case <-b.ctx.Done():
			return
		case <-time.After(probeInterval):
		}
	}
}

// found records the result of a probe. done reports that no more probes are necessary.
func (b *Breaker) found(err error) (done bool) {
	b.mu.Lock()
	was := b.reason
	b.reason = nil
	if err == nil {
		b.failures, b.looking = 0, false
	} else {
		b.reason = fmt.Errorf("error trying to reach service: %w", err)
		for p := range b.waiting {
			p.cancel(&openError{b.reason})
		}
		clear(b.waiting)
	}
	reason := b.reason
	b.mu.Unlock()
	if (was == nil) != (reason == nil) {
		b.Turned(reason)
	}
	return err == nil
}
