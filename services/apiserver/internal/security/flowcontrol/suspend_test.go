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

// TestSuspendedRequestHoldsNoSeats: a suspended request leaves its seats to others and waits for
// them when it resumes.
func TestSuspendedRequestHoldsNoSeats(t *testing.T) {
	for name, level := range map[string]*flowcontrolv1.PriorityLevelConfiguration{
		"with queues": limited("l", 5, 4, 2, 1), "without": limited("l", 5, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, 2, level) // one seat
			begin := func() *flowcontrol.Request {
				t.Helper()
				q, err := r.begin("a", "l")
				if err != nil {
					t.Fatal(err)
				}
				return q
			}
			first := begin()
			r.Suspend(first)
			r.Suspend(first) // counts once
			second := begin()
			brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if err := r.Resume(brief, first); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("resuming beside another request: got %v, want a timeout", err)
			}
			back := make(chan error)
			go func() { back <- r.Resume(t.Context(), first) }()
			r.End(second)
			if err := <-back; err != nil {
				t.Fatal(err)
			}
			if err := r.Resume(t.Context(), first); err != nil { // no effect while it runs
				t.Fatal(err)
			}
			r.Suspend(first)
			second = begin()
			r.End(first)
			r.End(first)
			r.Suspend(first)
			if err := r.Resume(t.Context(), first); err != nil { // no effect after End
				t.Fatal(err)
			}
			if n := r.running(); n != 1 {
				t.Errorf("got %v running requests, want 1", n)
			}
			r.End(second)
			r.Suspend(second) // no effect after End
			r.idle()
		})
	}
}

// TestSuspendedRequestIsNotRejected: a full queue does not reject a suspended request.
func TestSuspendedRequestIsNotRejected(t *testing.T) {
	r := newFixture(t, 2, limited("l", 5, 1, 1, 1)) // one seat, queue length 1
	first, err := r.begin("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	r.Suspend(first)
	second, err := r.begin("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	third := make(chan *flowcontrol.Request)
	go func() {
		q, _ := r.begin("b", "l")
		third <- q
	}()
	r.awaitWaiting(1)
	back := make(chan error)
	go func() { back <- r.Resume(context.Background(), first) }()
	r.awaitWaiting(2)
	if _, err := r.begin("c", "l"); reason(err) != "queue-full" {
		t.Errorf("new request: got %v, want queue-full", err)
	}
	r.End(second)
	r.End(<-third)
	if err := <-back; err != nil {
		t.Error(err)
	}
	r.End(first)
	r.idle()
}

// TestFinalSeatsAreHeldOnce: a suspended write holds its final seats, and does not hold them again
// when it ends.
func TestFinalSeatsAreHeldOnce(t *testing.T) {
	r := newFixture(t, 2, limited("l", 5, 0, 0, 0))
	q, _, err := r.Begin(t.Context(), user("a", "l"), list, func(int) flowcontrol.Width {
		return flowcontrol.Width{Seats: 1, Final: 1, After: 50 * time.Millisecond}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Suspend(q)
	if _, err := r.begin("a", "l"); reason(err) != "concurrency-limit" {
		t.Errorf("while final seats are held: got %v, want concurrency-limit", err)
	}
	if err := r.Resume(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	r.End(q)
	next, err := r.begin("a", "l")
	if err != nil {
		t.Fatalf("final seats are held twice: %v", err)
	}
	r.End(next)
	r.idle()
}

// TestFinalSeatsLeaveSeatsToOthers: final seats occupy at most half of the level.
func TestFinalSeatsLeaveSeatsToOthers(t *testing.T) {
	r := newFixture(t, 40, limited("l", 5, 0, 0, 0))
	fill := func() (n int) {
		var all []*flowcontrol.Request
		for q, err := r.begin("b", "l"); err == nil; q, err = r.begin("b", "l") {
			all = append(all, q)
		}
		for _, q := range all {
			r.End(q)
		}
		return len(all)
	}
	seats := fill()
	for range seats {
		q, _, err := r.Begin(t.Context(), user("a", "l"), list, func(int) flowcontrol.Width {
			return flowcontrol.Width{Seats: 1, Final: 4, After: 10 * time.Millisecond}
		})
		if err != nil {
			t.Fatal(err)
		}
		r.End(q)
	}
	if n := fill(); n < seats/2 {
		t.Errorf("got %d of %d seats for others, want at least %d", n, seats, seats/2)
	}
	r.idle()
}

// running returns the number of running requests by the metrics, if each has one seat.
func (r *fixture) running() (n float64) {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "apiserver_flowcontrol_current_executing_requests", "apiserver_flowcontrol_current_executing_seats":
			for _, m := range f.GetMetric() {
				n += m.GetGauge().GetValue()
			}
		}
	}
	return n / 2
}

// idle checks that the dump and the metrics have no requests.
func (r *fixture) idle() {
	r.t.Helper()
	var b strings.Builder
	if err := r.DumpRequests(&b, false); err != nil {
		r.t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != 1 {
		r.t.Errorf("unexpected requests:\n%s", b.String())
	}
	if n := r.running(); n != 0 {
		r.t.Errorf("metrics: got %v running requests, want 0", n)
	}
}
