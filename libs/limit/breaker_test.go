package limit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"binnacle/libs/limit"
)

// TestBreakerFollowsServer draws sequences of requests and outages. The breaker opens only for a
// server that fails, closes after it is back, and reports each change once.
func TestBreakerFollowsServer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		verify := rapid.Bool().Draw(rt, "verify")
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"up", "down", "fail", "succeed", "suspect", "sleep"}), 0,
			60).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			down, open, errGone := false, false, errors.New("gone")
			ctx, cancel := context.WithCancel(t.Context())
			var probes sync.WaitGroup
			breaker := limit.NewBreaker(ctx, &probes, limit.BreakerOptions{
				Threshold: 3, Verify: verify, Interval: time.Second,
				Probe: func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					if down {
						return errGone
					}
					return nil
				},
				OnChange: func(_ context.Context, reason error) {
					mu.Lock()
					defer mu.Unlock()
					if open == (reason != nil) {
						rt.Errorf("got the change to open: %t reported twice, want once", open)
					}
					open = reason != nil
				},
			})
			for _, step := range steps {
				before := breaker.Open() != nil
				mu.Lock()
				switch step {
				case "up", "down":
					down = step == "down"
				}
				mu.Unlock()
				switch step {
				case "fail":
					breaker.Failed(errGone)
				case "succeed":
					breaker.Succeeded()
				case "suspect":
					breaker.Probe()
				case "sleep":
					time.Sleep(2 * time.Second)
				}
				synctest.Wait()
				mu.Lock()
				if isOpen := breaker.Open() != nil; isOpen != open {
					rt.Errorf("after %s: open = %t, reported %t, want %v", step, isOpen, open, open)
				}
				if !before && open && (verify || step == "suspect") && !down {
					rt.Errorf("after %s: the breaker is open for a server that responds to probes", step)
				}
				if step == "sleep" && open && !down {
					rt.Error("breaker after a sleep with the server up: got open, want closed")
				}
				mu.Unlock()
			}
			cancel()
			probes.Wait()
		})
	})
}

// TestOpenBreakerCancelsWaitingRequests checks that opening the breaker cancels the contexts of
// requests, except those that have a response.
func TestOpenBreakerCancelsWaitingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errGone := errors.New("gone")
		ctx, cancel := context.WithCancel(t.Context())
		var probes sync.WaitGroup
		breaker := limit.NewBreaker(ctx, &probes, limit.BreakerOptions{
			Interval: time.Second, Probe: func(context.Context) error { return errGone }, OnChange: func(context.Context, error) {},
		})
		waits, _, done := breaker.Context(t.Context())
		responded, stop, respondedDone := breaker.Context(t.Context())
		stop()
		breaker.Probe()
		synctest.Wait()
		var open *limit.OpenError
		if err := context.Cause(waits); !errors.As(err, &open) || !errors.Is(err, errGone) || !errors.As(breaker.Open(), &open) {
			t.Errorf("got cause %v, want an OpenError", err)
		}
		if err := responded.Err(); err != nil {
			t.Errorf("context of a request with a response: got %v, want it not canceled", err)
		}
		done()
		respondedDone()
		cancel()
		probes.Wait()
	})
}
