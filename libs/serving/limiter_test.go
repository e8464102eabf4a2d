package serving

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
)

// TestLimiterIsFairByAddress checks that addresses are served round-robin, and that canceled waiters
// are removed.
func TestLimiterIsFairByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many, few := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		limiter := newFairLimiter(1)
		if err := limiter.acquire(t.Context(), many); err != nil {
			t.Fatal(err)
		}
		var order []string
		gone, goAway := context.WithCancel(t.Context())
		wait := func(ctx context.Context, from netip.Addr, name string) {
			go func() {
				if limiter.acquire(ctx, from) == nil {
					order = append(order, name)
				}
			}()
			synctest.Wait() // in this order
		}
		for range 3 {
			wait(t.Context(), many, "many")
		}
		wait(gone, few, "gone")
		wait(t.Context(), few, "few")
		wait(t.Context(), few, "few")
		goAway()
		synctest.Wait()
		for range 6 { // five waiters and the first holder
			limiter.release()
			synctest.Wait()
		}
		if got := strings.Join(order, " "); got != "many few many few many" {
			t.Errorf("order = %s", got)
		}
		if limiter.free != 1 || len(limiter.waiting)+len(limiter.order) > 0 {
			t.Errorf("at the end %d permits are free, waiting %v, order %v", limiter.free, limiter.waiting, limiter.order)
		}
	})
}

// TestLongAnswersAreFairByAddress checks that many waiters of one address do not delay another
// address.
func TestLongAnswersAreFairByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(address string) context.Context {
			return context.WithValue(t.Context(), connKey{}, &limitedConn{from: netip.MustParseAddr(address)})
		}
		answers := LongAnswers{newFairLimiter(1)}
		if err := answers.Enter(of("10.0.0.1")); err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, from := range []string{"10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"} {
			go func() {
				if answers.Enter(of(from)) == nil {
					order = append(order, from)
				}
			}()
			synctest.Wait() // in this order
		}
		for range 5 {
			answers.Leave()
			synctest.Wait()
		}
		if got := strings.Join(order, " "); got != "10.0.0.1 10.0.0.2 10.0.0.1 10.0.0.1" {
			t.Errorf("order = %s", got)
		}
	})
}

// TestLimiterPriority checks that priority waiters are served before all others, in order of
// arrival.
func TestLimiterPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newFairLimiter(1)
		if err := limiter.acquireFirst(t.Context()); err != nil {
			t.Fatal(err)
		}
		var order []string
		gone, goAway := context.WithCancel(t.Context())
		wait := func(name string, enter func() error) {
			go func() {
				if enter() == nil {
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		wait("last", func() error { return limiter.acquire(t.Context(), netip.Addr{}) })
		wait("gone", func() error { return limiter.acquireFirst(gone) })
		wait("first", func() error { return limiter.acquireFirst(t.Context()) })
		wait("second", func() error { return limiter.acquireFirst(t.Context()) })
		goAway()
		synctest.Wait()
		for range 4 {
			limiter.release()
			synctest.Wait()
		}
		if got := strings.Join(order, " "); got != "first second last" {
			t.Errorf("order = %s", got)
		}
		if limiter.free != 1 || len(limiter.priority)+len(limiter.order) > 0 {
			t.Errorf("at the end %d permits are free, priority %v, order %v", limiter.free, limiter.priority, limiter.order)
		}
	})
}

// TestPermitOfCanceledWaiterIsPassedOn checks that a permit granted to a canceled waiter is
// released.
func TestPermitOfCanceledWaiterIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newFairLimiter(1)
		for range 100 { // the select of the waiter is random
			if err := limiter.acquire(t.Context(), netip.Addr{}); err != nil {
				t.Fatal(err)
			}
			ctx, goAway := context.WithCancel(t.Context())
			go func() {
				if limiter.acquire(ctx, netip.Addr{}) == nil {
					limiter.release()
				}
			}()
			synctest.Wait()
			goAway()
			limiter.release()
			synctest.Wait()
			if limiter.free != 1 {
				t.Fatalf("%d permits are free, want 1", limiter.free)
			}
		}
	})
}
