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

// TestWhoPausesHoldsNoSeats: a request that waits for its client leaves its seats to
// others, and has to wait for them when it goes on.
func TestWhoPausesHoldsNoSeats(t *testing.T) {
	for name, level := range map[string]*flowcontrolv1.PriorityLevelConfiguration{
		"with queues": limited("l", 5, 4, 2, 1), "without": limited("l", 5, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, level) // one seat
			begin := func() *flowcontrol.Request {
				t.Helper()
				q, err := r.begin("a", "l")
				if err != nil {
					t.Fatal(err)
				}
				return q
			}
			first := begin()
			r.Pause(first)
			r.Pause(first) // counts once
			second := begin()
			brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if err := r.Resume(brief, first); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("it goes on beside another: %v", err)
			}
			back := make(chan error)
			go func() { back <- r.Resume(t.Context(), first) }()
			r.End(second)
			if err := <-back; err != nil {
				t.Fatal(err)
			}
			if err := r.Resume(t.Context(), first); err != nil { // it runs
				t.Fatal(err)
			}
			r.Pause(first)
			second = begin()
			r.End(first)
			r.End(first)
			r.Pause(first)
			if err := r.Resume(t.Context(), first); err != nil { // there is nothing to go on with
				t.Fatal(err)
			}
			if n := r.running(); n != 1 {
				t.Errorf("%v run beside what has ended", n)
			}
			r.End(second)
			r.Pause(second) // it has no seats to leave
			r.idle()
		})
	}
}

// TestWhatPausedIsNotRefused: queues that are full are for others.
func TestWhatPausedIsNotRefused(t *testing.T) {
	r := newRig(t, 2, limited("l", 5, 1, 1, 1)) // one seat, one may wait
	first, err := r.begin("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	r.Pause(first)
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
		t.Errorf("one that was not let in before: %v", err)
	}
	r.End(second)
	r.End(<-third)
	if err := <-back; err != nil {
		t.Error(err)
	}
	r.End(first)
	r.idle()
}

// TestWorkThatIsLeftIsPaidOnce: a write that pauses keeps seats for what it set going,
// and does not when it ends after that.
func TestWorkThatIsLeftIsPaidOnce(t *testing.T) {
	r := newRig(t, 2, limited("l", 5, 0, 0, 0))
	q, _, err := r.Begin(t.Context(), user("a", "l"), list, func(int) flowcontrol.Width {
		return flowcontrol.Width{Seats: 1, Final: 1, After: 50 * time.Millisecond}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Pause(q)
	if _, err := r.begin("a", "l"); reason(err) != "concurrency-limit" {
		t.Errorf("while what was set going goes on: %v", err)
	}
	if err := r.Resume(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	r.End(q)
	next, err := r.begin("a", "l")
	if err != nil {
		t.Fatalf("it is paid twice: %v", err)
	}
	r.End(next)
	r.idle()
}

// TestWorkThatIsLeftKeepsSomeSeats: whose writes wake many leaves half of the seats to others.
func TestWorkThatIsLeftKeepsSomeSeats(t *testing.T) {
	r := newRig(t, 40, limited("l", 5, 0, 0, 0))
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
		t.Errorf("others find %d of %d seats", n, seats)
	}
	r.idle()
}

// running tells how many run by the metrics, each with one seat.
func (r *rig) running() (n float64) {
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

// idle holds that nothing is left, by the dump and by the metrics.
func (r *rig) idle() {
	r.t.Helper()
	var b strings.Builder
	if err := r.DumpRequests(&b, false); err != nil {
		r.t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != 1 {
		r.t.Errorf("there is still\n%s", b.String())
	}
	if n := r.running(); n != 0 {
		r.t.Errorf("the metrics have %v", n)
	}
}
