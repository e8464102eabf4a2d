package flowcontrol_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

// TestAllSeatsAreFreeAfterRandomRequests checks that after random concurrent requests, all seats are free.
func TestAllSeatsAreFreeAfterRandomRequests(t *testing.T) {
	for name, level := range map[string]*flowcontrolv1.PriorityLevelConfiguration{
		"with queues": newQueuingLevel("l", 5, queuing{queues: 8, handSize: 3, queueLength: 4}), "without": newRejectingLevel("l", 5),
	} {
		t.Run(name, func(t *testing.T) {
			fixture := newFixture(t, 8, level)
			var clients sync.WaitGroup
			for i := range 24 {
				clients.Go(func() {
					random := rand.New(rand.NewPCG(uint64(i), 7))
					for range 40 {
						request, err := fixture.acquire(string(rune('a'+i%5)), "l")
						if err != nil {
							continue
						}
						for range random.IntN(3) {
							fixture.Suspend(request)
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(300))*time.Microsecond)
							err := fixture.Resume(ctx, request)
							cancel()
							if err != nil {
								break
							}
						}
						if random.IntN(2) == 0 {
							fixture.Suspend(request)
						}
						fixture.Release(request)
					}
				})
			}
			clients.Wait()
			if n := fixture.runningRequests(); n != 0 {
				t.Errorf("got %v running requests in the end, want 0", n)
			}
			fixture.wantIdle()
		})
	}
}
