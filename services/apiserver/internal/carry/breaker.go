package carry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/request"
)

const (
	// failuresInARow have it looked whether a server lives.
	failuresInARow = 3
	// A request that has waited suspectAfter for an answer has it looked, too.
	suspectAfter = 5 * time.Second
	// A request that has waited seatFor for an answer gives up its seats: it only waits,
	// and its server bounds how many do.
	seatFor = time.Second
	// probeInterval is between looks at a server that does not live.
	probeInterval = time.Second
)

// Breaker keeps a server that does not answer from costing more than a bounded time,
// and from holding more than its share of the requests that this server works on.
//
// Requests alone cannot open it, as what they are left to wait for may be their own
// fault: they have the server probed, and while no probe lives the breaker is open.
// What waited for an answer then is let go of.
type Breaker struct {
	BreakerConfig
	ctx    context.Context // ends probes
	probes *sync.WaitGroup

	mu       sync.Mutex // a leaf
	failures int
	looking  bool
	reason   error // open while there is one
	under    int
	held     map[string]int // by user; none is 0
	waiting  map[*passage]bool
}

// BreakerConfig is what a Breaker works with.
type BreakerConfig struct {
	// Probe asks the server for anything at all.
	Probe func(context.Context) error
	// Most is how many requests may be under way at a time; 0 is no bound. Those that
	// last as long as their client likes count until they are answered. A user has as
	// many of them as are free, at most.
	Most int
	// Turned is told when the breaker opens, with the reason, and when it closes.
	Turned func(reason error)
}

// NewBreaker makes a closed breaker. Its probes end with ctx, and are waited for by
// probes, which several may share.
func NewBreaker(ctx context.Context, probes *sync.WaitGroup, c BreakerConfig) *Breaker {
	return &Breaker{BreakerConfig: c, ctx: ctx, probes: probes, held: map[string]int{}, waiting: map[*passage]bool{}}
}

// Open tells why the server is not asked; nil while it is.
func (b *Breaker) Open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reason
}

// passage is a request on its way.
type passage struct {
	of     *Breaker
	user   string
	long   bool
	timers [2]*time.Timer
	cancel context.CancelCauseFunc

	counted bool // guarded by the breaker's mu
}

// openError refuses requests to a server that does not live.
type openError struct{ reason error }

func (e *openError) Error() string { return e.reason.Error() }
func (e *openError) Unwrap() error { return e.reason }

// errCrowded refuses a request where too many wait for the same server.
var errCrowded = errors.New("too many requests wait for the server")

// enter begins a request, whose context ends with an *openError as its cause when the
// breaker opens before the server answered. The passage has to be left.
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

// answered tells that the server lives.
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

// failed tells that the request could not be carried on.
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

// uncount gives the place up. The caller holds the breaker's mu.
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

// suspect has it looked whether the server lives, unless somebody looks.
func (b *Breaker) suspect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looking || b.ctx.Err() != nil {
		return
	}
	b.looking = true
	b.probes.Go(b.look)
}

// look probes the server until it lives.
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

// found takes up what came of a probe; done tells that no more are needed.
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
