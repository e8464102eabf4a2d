package reverseproxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/request"
)

const (
	// failureThreshold is the number of consecutive failures that trigger a probe.
	failureThreshold = 3
	// suspectAfter is the wait of a request for a response that triggers a probe.
	suspectAfter = 5 * time.Second
	// seatTimeout is how long a request waits for a response before it releases its seats. From
	// then on, only BreakerConfig.MaxRequests bounds the number of such requests.
	seatTimeout = time.Second
	// probeInterval is the interval between probes of an unresponsive server.
	probeInterval = time.Second
)

// Breaker bounds the cost of a server that does not respond, and its share of the requests in
// progress.
//
// Requests alone cannot open it, because a slow request may be its own fault. They trigger a probe
// of the server. When the breaker opens, requests that wait for a response are canceled.
type Breaker struct {
	*limit.Breaker
	requests *limit.Queue[string]
}

// BreakerConfig configures a Breaker.
type BreakerConfig struct {
	// Probe sends any request to the server.
	Probe func(context.Context) error
	// MaxRequests is the maximum number of requests in progress; 0 means no limit. Long-running
	// requests count until they are answered. Principals share it.
	MaxRequests int
	// OnChange is called when the breaker opens, with the reason, and when it closes.
	OnChange func(reason error)
}

// NewBreaker returns a closed breaker. Its probes stop when ctx ends. probes counts the running
// probes; breakers may share it.
func NewBreaker(ctx context.Context, probes *sync.WaitGroup, breakerConfig BreakerConfig) *Breaker {
	return &Breaker{
		limit.NewBreaker(ctx, probes, limit.BreakerOptions{
			Threshold: failureThreshold,
			Verify:    true,
			Interval:  probeInterval,
			Probe: func(ctx context.Context) error {
				if err := breakerConfig.Probe(ctx); err != nil {
					return fmt.Errorf("error trying to reach service: %w", err)
				}
				return nil
			},
			OnChange: func(_ context.Context, reason error) { breakerConfig.OnChange(reason) },
		}),
		limit.New[string](limit.Options{Size: breakerConfig.MaxRequests, FairShare: true}),
	}
}

// call is a proxied request in progress.
type call struct {
	breaker     *Breaker
	longRunning bool           // has no timeout and releases its slot with the response
	timers      [2]*time.Timer // after suspectAfter and seatTimeout
	// detachBreaker makes the breaker no longer cancel the request when it opens.
	detachBreaker func() bool
	cancel        context.CancelFunc
	release       func() // releases the slot
}

// errTooManyRequests rejects a request when too many wait for the same server.
var errTooManyRequests = errors.New("too many requests wait for the server")

// startCall starts a request. If the breaker opens before the server responds, the context ends
// with a *limit.OpenError as its cause. The caller must call finish.
func (b *Breaker) startCall(ctx context.Context, principal string, longRunning bool) (context.Context, *call, error) {
	if err := b.Open(); err != nil {
		return nil, nil, err
	}
	slot := limit.Claim[string]{Key: principal}
	if !b.requests.TryAcquire(slot) {
		return nil, nil, errTooManyRequests
	}
	c := &call{breaker: b, longRunning: longRunning, release: sync.OnceFunc(func() { b.requests.Release(slot) })}
	ctx, c.detachBreaker, c.cancel = b.Context(ctx)
	callCtx := ctx
	c.timers = [2]*time.Timer{
		time.AfterFunc(suspectAfter, b.Probe), time.AfterFunc(seatTimeout, func() { request.Started(callCtx) }),
	}
	return ctx, c, nil
}

// recordResponse records that the server has responded.
func (c *call) recordResponse() {
	c.stopTimers()
	c.detachBreaker()
	c.breaker.Succeeded()
	if c.longRunning {
		c.release()
	}
}

// finish releases the slot and cancels the context of the request.
func (c *call) finish() {
	c.stopTimers()
	c.release()
	c.cancel()
}

// stopTimers stops the timers that wait for the response.
func (c *call) stopTimers() {
	for _, t := range c.timers {
		t.Stop()
	}
}
