package flowcontrol_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// TestSuspendedRequestHoldsNoSeats checks that a suspended request leaves its seats to others and
// waits for them when it resumes.
func TestSuspendedRequestHoldsNoSeats(t *testing.T) {
	for name, level := range map[string]*flowcontrolv1.PriorityLevelConfiguration{
		"with queues": newQueuingLevel("l", 5, queuing{queues: 4, handSize: 2, queueLength: 1}), "without": newRejectingLevel("l", 5),
	} {
		t.Run(name, func(t *testing.T) {
			fixture := newFixture(t, 2, level) // one seat
			start := func() *flowcontrol.Request {
				t.Helper()
				request, err := fixture.acquire("a", "l")
				if err != nil {
					t.Fatal(err)
				}
				return request
			}
			first := start()
			fixture.Suspend(first)
			fixture.Suspend(first) // counts once
			second := start()
			brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if err := fixture.Resume(brief, first); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("resuming beside another request: got %v, want a timeout", err)
			}
			resumed := make(chan error)
			go func() { resumed <- fixture.Resume(t.Context(), first) }()
			fixture.Release(second)
			if err := <-resumed; err != nil {
				t.Fatal(err)
			}
			if err := fixture.Resume(t.Context(), first); err != nil { // no effect while it runs
				t.Fatal(err)
			}
			fixture.Suspend(first)
			second = start()
			fixture.Release(first)
			fixture.Release(first)
			fixture.Suspend(first)
			if err := fixture.Resume(t.Context(), first); err != nil { // no effect after End
				t.Fatal(err)
			}
			if n := fixture.runningRequests(); n != 1 {
				t.Errorf("got %v running requests, want 1", n)
			}
			fixture.Release(second)
			fixture.Suspend(second) // no effect after End
			fixture.wantIdle()
		})
	}
}

// TestSuspendedRequestIsNotRejected checks that a full queue does not reject a suspended request.
func TestSuspendedRequestIsNotRejected(t *testing.T) {
	fixture := newFixture(t, 2, newQueuingLevel("l", 5, queuing{queues: 1, handSize: 1, queueLength: 1})) // one seat, queue length 1
	first, err := fixture.acquire("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	fixture.Suspend(first)
	second, err := fixture.acquire("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	third := make(chan *flowcontrol.Request)
	go func() {
		request, _ := fixture.acquire("b", "l")
		third <- request
	}()
	fixture.awaitWaiting(1)
	resumed := make(chan error)
	go func() { resumed <- fixture.Resume(context.Background(), first) }()
	fixture.awaitWaiting(2)
	if _, err := fixture.acquire("c", "l"); rejectionReason(err) != "queue-full" {
		t.Errorf("new request: got %v, want queue-full", err)
	}
	fixture.Release(second)
	fixture.Release(<-third)
	if err := <-resumed; err != nil {
		t.Error(err)
	}
	fixture.Release(first)
	fixture.wantIdle()
}

// TestFinalSeatsAreHeldOnce checks that a suspended write holds its final seats, and does not hold
// them again when it ends.
func TestFinalSeatsAreHeldOnce(t *testing.T) {
	fixture := newFixture(t, 2, newRejectingLevel("l", 5))
	request, _, err := fixture.Acquire(t.Context(), newUser("a", "l"), list, func(int) flowcontrol.Width {
		return flowcontrol.Width{Seats: 1, Final: 1, AdditionalLatency: 50 * time.Millisecond}
	})
	if err != nil {
		t.Fatal(err)
	}
	fixture.Suspend(request)
	if _, err := fixture.acquire("a", "l"); rejectionReason(err) != "concurrency-limit" {
		t.Errorf("while final seats are held: got %v, want concurrency-limit", err)
	}
	if err := fixture.Resume(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	fixture.Release(request)
	next, err := fixture.acquire("a", "l")
	if err != nil {
		t.Fatalf("final seats are held twice: %v, want no error", err)
	}
	fixture.Release(next)
	fixture.wantIdle()
}

// TestFinalSeatsLeaveSeatsToOthers checks that final seats occupy at most half of the level.
func TestFinalSeatsLeaveSeatsToOthers(t *testing.T) {
	fixture := newFixture(t, 40, newRejectingLevel("l", 5))
	fillLevel := func() (n int) {
		var all []*flowcontrol.Request
		for request, err := fixture.acquire("b", "l"); err == nil; request, err = fixture.acquire("b", "l") {
			all = append(all, request)
		}
		for _, request := range all {
			fixture.Release(request)
		}
		return len(all)
	}
	seats := fillLevel()
	for range seats {
		request, _, err := fixture.Acquire(t.Context(), newUser("a", "l"), list, func(int) flowcontrol.Width {
			return flowcontrol.Width{Seats: 1, Final: 4, AdditionalLatency: 10 * time.Millisecond}
		})
		if err != nil {
			t.Fatal(err)
		}
		fixture.Release(request)
	}
	if n := fillLevel(); n < seats/2 {
		t.Errorf("got %d of %d seats for others, want at least %d", n, seats, seats/2)
	}
	fixture.wantIdle()
}

// runningRequests returns the number of running requests by the metrics, if each has one seat.
func (r *fixture) runningRequests() (running float64) {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "apiserver_flowcontrol_current_executing_requests", "apiserver_flowcontrol_current_executing_seats":
			for _, m := range f.GetMetric() {
				running += m.GetGauge().GetValue()
			}
		}
	}
	return running / 2
}

// wantIdle checks that the dump and the metrics have no requests.
func (f *fixture) wantIdle() {
	f.t.Helper()
	var b strings.Builder
	if err := f.DumpRequests(&b, false); err != nil {
		f.t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != 1 {
		f.t.Errorf("got requests, want none:\n%s", b.String())
	}
	if n := f.runningRequests(); n != 0 {
		f.t.Errorf("metrics: got %v running requests, want 0", n)
	}
}
