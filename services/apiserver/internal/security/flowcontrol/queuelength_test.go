package flowcontrol_test

import (
	"context"
	"fmt"
	"testing"

	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// TestFullQueueAcceptsRequestsForFreeSeats checks that behind a wide request, at most one request per free
// seat waits beyond the queue length.
func TestFullQueueAcceptsRequestsForFreeSeats(t *testing.T) {
	fixture := newFixture(t, 21, newQueuingLevel("l", 15, queuing{queues: 1, handSize: 1, queueLength: 2})) // 16 seats
	widthOf := func(seats int) func(int) flowcontrol.Width {
		return func(int) flowcontrol.Width { return flowcontrol.Width{Seats: seats} }
	}
	runs, _, err := fixture.Acquire(t.Context(), newUser("a", "l"), list, widthOf(10))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 12)
	start := func(name string, seats int) {
		request, _, err := fixture.Acquire(ctx, newUser(name, "l"), list, widthOf(seats))
		if err == nil {
			fixture.Release(request)
		}
		done <- err
	}
	go start("wide", 10)
	fixture.awaitWaiting(1)
	go start("narrow", 1)
	fixture.awaitWaiting(2)
	for i := range 10 {
		go start(fmt.Sprint("more-", i), 1)
	}
	for range 4 {
		if err := <-done; rejectionReason(err) != "queue-full" {
			t.Errorf("beyond the queue length: got %v, want queue-full", err)
		}
	}
	fixture.awaitWaiting(8)
	fixture.Release(runs)
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	cancel()
	fixture.wantIdle()
}
