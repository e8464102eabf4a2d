package server

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"binnacle/libs/api"
	"binnacle/libs/node"
)

// Small requests cannot overtake a large one of another principal forever. Nodes and the suite's services
// can.
func TestLargeWaiterIsAdmittedAfterMaxBypass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newByteBudget(100)
		b.fair.strict = true
		var small []func()
		enter := func(n int) func() {
			leave, ok := b.acquire(t.Context(), newClient(fmt.Sprint("user", n)), 20)
			if !ok {
				t.Error("no bytes for a small request")
			}
			return leave
		}
		for n := range 3 {
			small = append(small, enter(n))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		came := false
		go func() {
			leave, ok := b.acquire(ctx, newClient("large"), 45)
			if came = ok; ok {
				leave()
			}
		}()
		synctest.Wait()
		passed := 0
		for n := 3; !came && passed < 10*maxBypass; n++ {
			next := make(chan func(), 1)
			go func() { next <- enter(n) }()
			synctest.Wait()
			small[0]()
			small = small[1:]
			synctest.Wait()
			select {
			case leave := <-next:
				small = append(small, leave)
				passed++
			default:
				if b.prioritized == nil {
					t.Fatal("no request was admitted")
				}
				for _, of := range []client{newClient("system:node:n", node.Group), newClient(api.UserSuitePrefix+"x", api.GroupSuite)} {
					if leave, ok := b.tryAcquire(of, 1); ok {
						leave()
					} else {
						t.Errorf("%s is blocked by the prioritized waiter", of.Name)
					}
				}
				for _, leave := range small {
					leave()
				}
				small = nil
				synctest.Wait()
				small = append(small, <-next)
			}
		}
		if !came || passed < maxBypass || passed > 2*maxBypass {
			t.Errorf("large request admitted = %t after %d small ones, want true after %d to %d", came, passed, maxBypass, 2*maxBypass)
		}
		for _, leave := range small {
			leave()
		}
		synctest.Wait()
		if b.fair.used != 0 || b.prioritized != nil || len(b.order) != 0 {
			t.Errorf("%d bytes are used in the end, want 0", b.fair.used)
		}
	})
}

// A principal that waits for its own bytes does not block others.
func TestWaiterForOwnBytesIsNotPrioritized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newByteBudget(100)
		b.fair.strict = true
		leave, ok := b.acquire(t.Context(), newClient("large"), 45)
		if !ok {
			t.Fatal("an empty budget has no bytes")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go b.acquire(ctx, newClient("large"), 45)
		synctest.Wait()
		for range 3 * maxBypass {
			small, ok := b.tryAcquire(newClient("small"), 10)
			if !ok {
				t.Fatal("a small request is blocked")
			}
			small()
		}
		leave()
		cancel()
		synctest.Wait()
	})
}

// Parallel goroutines of one request reserve its bytes once.
func TestParallelReservationsCountOnce(t *testing.T) {
	large := newByteBudget(100 * largeBody)
	large.fair.strict = true
	for range 200 {
		w := &largeWork{ctx: t.Context(), user: newClient("a"), budget: large, acquiring: make(chan struct{}, 1)}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { w.reserve(largeBody) })
		}
		all.Wait()
		w.release()
	}
	if large.fair.used != 0 {
		t.Errorf("%d bytes are used after release, want 0", large.fair.used)
	}
}
