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
	// failureThreshold is the number of consecutive failures that trigger a probe.
	failureThreshold = 3
	// suspectAfter is the wait of a request for a response that triggers a probe.
	suspectAfter = 5 * time.Second
	// seatTimeout is how long a request waits for a response before it releases its seats. Then it only
	// waits, and the limit of its server bounds the number of such requests.
	seatTimeout = time.Second
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
	probing  bool
	reason   error // the breaker is open while this is set
	inFlight int
	byUser   map[string]int // by user; no entry is 0
	waiting  map[*call]bool
}

// BreakerConfig configures a Breaker.
type BreakerConfig struct {
	// Probe sends any request to the server.
	Probe func(context.Context) error
	// MaxRequests is the maximum number of requests in progress; 0 means no limit. Long-running requests
	// count until they are answered. A user may have at most as many requests as there are free
	// slots.
	MaxRequests int
	// OnChange is called when the breaker opens, with the reason, and when it closes.
	OnChange func(reason error)
}

// NewBreaker returns a closed breaker. Its probes end with ctx. The WaitGroup probes, which
// breakers may share, waits for them.
func NewBreaker(ctx context.Context, probes *sync.WaitGroup, c BreakerConfig) *Breaker {
	return &Breaker{BreakerConfig: c, ctx: ctx, probes: probes, byUser: map[string]int{}, waiting: map[*call]bool{}}
}

// Open returns the reason why the breaker is open, or nil if it is closed.
func (b *Breaker) Open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reason
}

// call is a request in progress.
type call struct {
	breaker *Breaker
	user    string
	long    bool
	timers  [2]*time.Timer
	cancel  context.CancelCauseFunc

	counted bool // guarded by the breaker's mu
}

// openError rejects requests to an unresponsive server.
type openError struct{ reason error }

func (e *openError) Error() string { return e.reason.Error() }
func (e *openError) Unwrap() error { return e.reason }

// errTooManyRequests rejects a request when too many wait for the same server.
var errTooManyRequests = errors.New("too many requests wait for the server")

// begin starts a request. If the breaker opens before the server responds, the context ends with an
// *openError as its cause. The caller must call end.
func (b *Breaker) begin(ctx context.Context, user string, long bool) (context.Context, *call, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reason != nil {
		return nil, nil, &openError{b.reason}
	}
	if b.MaxRequests > 0 && b.byUser[user] >= b.MaxRequests-b.inFlight {
		return nil, nil, errTooManyRequests
	}
	c := &call{breaker: b, user: user, long: long, counted: true}
	ctx, c.cancel = context.WithCancelCause(ctx)
	begun := ctx
	c.timers = [2]*time.Timer{time.AfterFunc(suspectAfter, b.suspect), time.AfterFunc(seatTimeout, func() { request.Started(begun) })}
	b.inFlight++
	b.byUser[user]++
	b.waiting[c] = true
	return ctx, c, nil
}

// responded records that the server has responded.
func (c *call) responded() {
	c.stop()
	c.breaker.mu.Lock()
	defer c.breaker.mu.Unlock()
	delete(c.breaker.waiting, c)
	c.breaker.failures = 0
	if c.long {
		c.release()
	}
}

// failed records that the request could not be proxied.
func (c *call) failed(reason error) {
	b := c.breaker
	b.mu.Lock()
	b.failures++
	probe := b.failures >= failureThreshold
	b.mu.Unlock()
	if probe {
		b.suspect()
	}
}

// end ends the request.
func (c *call) end() {
	c.stop()
	c.breaker.mu.Lock()
	delete(c.breaker.waiting, c)
	c.release()
	c.breaker.mu.Unlock()
	c.cancel(nil)
}

func (c *call) stop() {
	for _, t := range c.timers {
		t.Stop()
	}
}

// release releases the slot. The caller holds the breaker's mu.
func (c *call) release() {
	if !c.counted {
		return
	}
	c.counted = false
	c.breaker.inFlight--
	if c.breaker.byUser[c.user]--; c.breaker.byUser[c.user] == 0 {
		delete(c.breaker.byUser, c.user)
	}
}

// suspect starts probing the server unless a probe is running.
func (b *Breaker) suspect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probing || b.ctx.Err() != nil {
		return
	}
	b.probing = true
	b.probes.Go(b.probe)
}

// probe probes the server until it responds.
func (b *Breaker) probe() {
	for {
		err := b.Probe(b.ctx)
		if b.ctx.Err() != nil || b.recordProbe(err) {
			return
		}
		select {
		case <-b.ctx.Done():
			return
		case <-time.After(probeInterval):
		}
	}
}

// recordProbe records the result of a probe. done reports that no more probes are necessary.
func (b *Breaker) recordProbe(err error) (done bool) {
	b.mu.Lock()
	was := b.reason
	b.reason = nil
	if err == nil {
		b.failures, b.probing = 0, false
	} else {
		b.reason = fmt.Errorf("error trying to reach service: %w", err)
		for c := range b.waiting {
			c.cancel(&openError{b.reason})
		}
		clear(b.waiting)
	}
	reason := b.reason
	b.mu.Unlock()
	if (was == nil) != (reason == nil) {
		b.OnChange(reason)
	}
	return err == nil
}
