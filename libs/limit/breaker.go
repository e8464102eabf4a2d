package limit

import (
	"context"
	"sync"
	"time"
)

// BreakerOptions configures a Breaker.
type BreakerOptions struct {
	// Threshold is the number of consecutive failed requests that open the breaker.
	Threshold int
	// Verify makes Threshold failed requests start a probe, and only a failed probe open the
	// breaker. It is for servers that respond, but whose requests may fail for other reasons.
	Verify bool
	// Interval is the time between probes.
	Interval time.Duration
	// Probe sends a request to the server, and returns an error if the server does not respond.
	Probe func(context.Context) error
	// OnChange is called when the breaker opens, with the reason, and with nil when it closes.
	OnChange func(ctx context.Context, reason error)
}

// Breaker bounds the cost of a server that does not respond. It starts closed. While it is open, it
// probes the server, and closes with the first successful probe.
type Breaker struct {
	options BreakerOptions
	ctx     context.Context // ends probes
	probes  *sync.WaitGroup

	mu       sync.Mutex // leaf lock
	failures int
	probing  bool
	reason   error // nil while the breaker is closed
	// closedCtx is canceled with an *OpenError as its cause when the breaker opens. It is replaced
	// when the breaker closes.
	closedCtx       context.Context
	cancelClosedCtx context.CancelCauseFunc
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
	b := &Breaker{options: o, ctx: ctx, probes: probes}
	b.closedCtx, b.cancelClosedCtx = context.WithCancelCause(context.Background())
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

// Context returns a context for a request, derived from ctx. It ends with an *OpenError as its
// cause when the breaker opens, unless stop was called. The caller must call cancel.
func (b *Breaker) Context(ctx context.Context) (_ context.Context, stop func() bool, cancel context.CancelFunc) {
	b.mu.Lock()
	closed := b.closedCtx
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
	case b.failures < b.options.Threshold:
	case b.options.Verify:
		b.startProbe(nil)
	default:
		b.startProbe(reason)
	}
	return b.failures
}

// Probe starts a probe, which opens the breaker if it fails.
func (b *Breaker) Probe() {
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
	b.setState(reason)
	b.probes.Go(func() { b.probeUntilSuccess(reason) })
}

// setState opens the breaker with a reason, or closes it if reason is nil. The caller holds mu.
func (b *Breaker) setState(reason error) {
	switch {
	case reason != nil:
		b.cancelClosedCtx(&OpenError{reason})
	case b.reason != nil:
		b.closedCtx, b.cancelClosedCtx = context.WithCancelCause(context.Background())
	}
	b.reason = reason
}

// probeUntilSuccess probes the server until it responds, and opens and closes the breaker.
// openReason is the reason why the breaker is open, or nil if it is closed.
func (b *Breaker) probeUntilSuccess(openReason error) {
	isOpen := openReason != nil
	if isOpen {
		b.options.OnChange(b.ctx, openReason)
		if !b.waitInterval() {
			return
		}
	}
	for {
		err := b.options.Probe(b.ctx)
		if b.ctx.Err() != nil {
			return
		}
		b.mu.Lock()
		b.setState(err)
		if err == nil {
			b.failures = 0
			b.probing = false
		}
		b.mu.Unlock()
		if isOpen != (err != nil) {
			isOpen = err != nil
			b.options.OnChange(b.ctx, err)
		}
		if err == nil || !b.waitInterval() {
			return
		}
	}
}

// waitInterval waits for the next probe. It returns false if the context of the breaker ends first.
func (b *Breaker) waitInterval() bool {
	timer := time.NewTimer(b.options.Interval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-b.ctx.Done():
		return false
	}
}
