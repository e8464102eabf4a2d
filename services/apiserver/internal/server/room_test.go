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

// TestWhoWasPassedOftenIsNext: small ones do not come in for ever before a large one of somebody who has
// nothing; nodes and the suite's own services do.
func TestWhoWasPassedOftenIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBodies(100)
		b.room.strict = true
		var small []func()
		enter := func(n int) func() {
			leave, ok := b.enter(t.Context(), somebody(fmt.Sprint("user", n)), 20)
			if !ok {
				t.Error("no room for a small one")
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
			leave, ok := b.enter(ctx, somebody("large"), 45)
			if came = ok; ok {
				leave()
			}
		}()
		synctest.Wait()
		passed := 0
		for n := 3; !came && passed < 10*maxPassed; n++ {
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
				if b.first == nil {
					t.Fatal("nobody comes in")
				}
				for _, of := range []client{somebody("system:node:n", node.Group), somebody(api.UserSuitePrefix+"x", api.GroupSuite)} {
					if leave, ok := b.enterNow(of, 1); ok {
						leave()
					} else {
						t.Errorf("%s waits behind the first", of.Name)
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
		if !came || passed < maxPassed || passed > 2*maxPassed {
			t.Errorf("it came: %t, after %d small ones", came, passed)
		}
		for _, leave := range small {
			leave()
		}
		synctest.Wait()
		if b.room.used != 0 || b.first != nil || len(b.order) != 0 {
			t.Errorf("%d are used afterwards", b.room.used)
		}
	})
}

// TestWhoWaitsForHimselfIsNobodysFirst: a user who has all that he may have keeps nobody else out.
func TestWhoWaitsForHimselfIsNobodysFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBodies(100)
		b.room.strict = true
		leave, ok := b.enter(t.Context(), somebody("large"), 45)
		if !ok {
			t.Fatal("there is room")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go b.enter(ctx, somebody("large"), 45)
		synctest.Wait()
		for range 3 * maxPassed {
			small, ok := b.enterNow(somebody("small"), 10)
			if !ok {
				t.Fatal("a small one waits")
			}
			small()
		}
		leave()
		cancel()
		synctest.Wait()
	})
}

// TestRoomIsTakenOnce by a request that works on several things at a time.
func TestRoomIsTakenOnce(t *testing.T) {
	large := newBodies(100 * largeBody)
	large.room.strict = true
	for range 200 {
		w := &workedOn{ctx: t.Context(), user: somebody("a"), among: large, beginning: make(chan struct{}, 1)}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { w.enterLate(largeBody) })
		}
		all.Wait()
		w.leave()
	}
	if large.room.used != 0 {
		t.Errorf("%d bytes are used", large.room.used)
	}
}
