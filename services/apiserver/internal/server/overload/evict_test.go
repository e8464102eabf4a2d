package overload

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// newArrivingBody returns a body of a user that is being received.
func newArrivingBody(t *testing.T, budget *bodyBudget, name string) *reservedBody {
	body := &reservedBody{budget: budget, ctx: t.Context(), user: newClient(name)}
	body.arrival, body.reject = context.WithCancelCause(t.Context())
	budget.addArriving(body)
	t.Cleanup(func() {
		budget.removeArriving(body)
		body.reject(nil)
	})
	return body
}

// releaseWhenRejected releases the memory of the body when it is rejected, as its request does.
func (body *reservedBody) releaseWhenRejected() {
	go func() {
		<-body.arrival.Done()
		body.release()
	}()
}

// TestStalledBodiesAreEvictedForOtherPrincipals checks that a body gets memory although service
// accounts of many other namespaces hold all of it with stalled bodies.
func TestStalledBodiesAreEvictedForOtherPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &bodyBudget{Queue: newSharedLimit(testBounds.MinBodyBytes)}
		for i := range 20 {
			for {
				body := newArrivingBody(t, budget, fmt.Sprintf("system:serviceaccount:n%d:a", i))
				body.releaseWhenRejected()
				claim := body.user.newClaim(budget.Queue, 64<<10)
				if !budget.TryAcquire(claim) {
					break
				}
				body.claims = append(body.claims, claim)
				budget.recordSize(body, 64<<10)
			}
		}
		time.Sleep(stalledAfter)
		start := time.Now()
		if err := newArrivingBody(t, budget, "system:serviceaccount:other:a").reserve(256 << 10); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited > evictInterval {
			t.Errorf("a body waited %v for the memory of stalled ones, want at most %v", waited, evictInterval)
		}
	})
}

// TestOldestBodyOfPrincipalCompletes checks that two bodies of one principal each hold the memory
// that the other needs to grow. The older one completes, the later one is rejected.
func TestOldestBodyOfPrincipalCompletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &bodyBudget{Queue: newSharedLimit(4 << 20)}
		first := newArrivingBody(t, budget, "a")
		second := newArrivingBody(t, budget, "a")
		first.releaseWhenRejected()
		second.releaseWhenRejected()
		for _, body := range []*reservedBody{first, second} {
			if err := body.reserve(1 << 20); err != nil {
				t.Fatal(err)
			}
		}
		rejected := make(chan error, 1)
		go func() { rejected <- second.reserve(2 << 20) }()
		start := time.Now()
		if err := first.reserve(2 << 20); err != nil {
			t.Errorf("older body: reserve returned %v, want nil", err)
		}
		if waited := time.Since(start); waited > stalledAfter+evictInterval {
			t.Errorf("older body waited %v, want at most %v", waited, stalledAfter+evictInterval)
		}
		if err := <-rejected; !errors.Is(err, errNoMemory) {
			t.Errorf("later body: got %v, want %v", err, errNoMemory)
		}
	})
}
