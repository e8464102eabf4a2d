package limit

import (
	"context"
	"sync"
	"time"
)

// BreakerOptions configures a Breaker.
type BreakerOptions struct {
	// Threshold is the number of consecutive failures of requests that open the breaker.
	Threshold int
	// Verify makes a failed probe open the breaker instead of the failed requests, which only start
	// the probe. It is for servers whose requests may fail for reasons of their own.
	Verify bool
	// Interval is the time between probes.
	Interval time.Duration
	// Probe sends any request to the server.
	Probe func(context.Context) error
	// OnChange is called when the breaker opens, with the reason, and with nil when it closes.
	OnChange func(ctx context.Context, reason error)
}

// Breaker bounds the cost of a server that does not respond. It starts closed. While it is open, it
// probes the server, and closes with the first successful probe.
type Breaker struct {
	o      BreakerOptions
	ctx    context.Context // ends probes
	probes *sync.WaitGroup

	mu       sync.Mutex // a leaf
	failures int
	probing  bool
	reason   error // the breaker is open while this is set
	// closed ends when the breaker opens.
	closed context.Context
	open   context.CancelCauseFunc
}

// OpenError is the error of a request to a server that does not respond.
type OpenError struct{ Reason error }

// Error implements error.
func (e *OpenError) Error() string { return e.Reason.Error() }

// Unwrap returns the reason.
func (e *OpenError) Unwrap() error { return e.Reason }

// NewBreaker returns a closed breaker. Its probes end with ctx. The WaitGroup probes, which
// breakers may share, waits for them.
func NewBreaker(ctx context.Context, probes *sync.WaitGroup, o BreakerOptions) *Breaker {
	b := &Breaker{o: o, ctx: ctx, probes: probes}
	b.closed, b.open = context.WithCancelCause(context.Background())
	return b
}

// Open returns an *OpenError if the breaker is open.
func (b *Breaker) Open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reason == nil {
		return nil
	}
	return &OpenError{b.reason}
}

// Context returns a context that ends with an *OpenError as its cause when the breaker opens. After
// stop, it does not end for this reason.
func (b *Breaker) Context(ctx context.Context) (_ context.Context, stop func() bool, cancel context.CancelFunc) {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	ctx, cancelCause := context.WithCancelCause(ctx)
	stop = context.AfterFunc(closed, func() { cancelCause(context.Cause(closed)) })
	return ctx, stop, func() { stop(); cancelCause(nil) }
}

// Succeeded records a request that the server responded to.
func (b *Breaker) Succeeded() {
	b.mu.Lock()
	b.failures = 0
	b.mu.Unlock()
}

// Failed records a request that failed, and returns the number of consecutive failures.
func (b *Breaker) Failed(reason error) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	switch {
	case b.failures < b.o.Threshold:
	case b.o.Verify:
		b.startProbe(nil)
	default:
		b.startProbe(reason)
	}
	return b.failures
}

// Suspect starts a probe, which opens the breaker if it fails.
func (b *Breaker) Suspect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.startProbe(nil)
}

// startProbe starts probing unless a probe is running. It opens the breaker at once if reason is
// set. The caller holds mu.
func (b *Breaker) startProbe(reason error) {
	if b.probing || b.ctx.Err() != nil {
		return
	}
	b.probing = true
	b.set(reason)
	b.probes.Go(func() { b.probe(reason) })
}

// set sets the reason why the breaker is open, or closes it. The caller holds mu.
func (b *Breaker) set(reason error) {
	switch {
	case reason != nil:
		b.open(&OpenError{reason})
	case b.reason != nil:
		b.closed, b.open = context.WithCancelCause(context.Background())
	}
	b.reason = reason
}

// probe probes the server until it responds. opened is the reason why the breaker is already open.
func (b *Breaker) probe(opened error) {
	isOpen := opened != nil
	if isOpen {
		b.o.OnChange(b.ctx, opened)
		if !b.sleep() {
			return
		}
	}
	for {
		err := b.o.Probe(b.ctx)
		if b.ctx.Err() != nil {
			return
		}
		b.mu.Lock()
		b.set(err)
		if err == nil {
			b.failures = 0
			b.probing = false
		}
		b.mu.Unlock()
		if isOpen != (err != nil) {
			isOpen = err != nil
			b.o.OnChange(b.ctx, err)
		}
		if err == nil || !b.sleep() {
			return
		}
	}
}

// sleep waits for the next probe. It returns false if the context of the breaker ends first.
func (b *Breaker) sleep() bool {
	timer := time.NewTimer(b.o.Interval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-b.ctx.Done():
		return false
	}
}
