package overload

import (
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/api/requestinfo"
)

// TestSeatsAreReleasedOnce checks that a request releases its seats once, not after its end. A
// request with several waits acquires the seats after the last one.
func TestSeatsAreReleasedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flow := newFlow(1, time.Second)
		stalled := newSharedLimit(4)
		start := func() *seatHolder {
			t.Helper()
			user := newClient("a")
			info := &requestinfo.Info{Verb: "list", Path: "/x"}
			admitted, _, err := flow.Acquire(t.Context(), user.User, info, nil)
			if err != nil {
				t.Fatal(err)
			}
			return &seatHolder{flow: flow, stalled: stalled, ctx: t.Context(), user: user, request: admitted}
		}
		wantStalled := func(step string, n int) {
			t.Helper()
			if stalled.InUse() != n {
				t.Errorf("%s: got %d stalled requests, want %d", step, stalled.InUse(), n)
			}
		}
		pause := func(step string, seats *seatHolder) {
			t.Helper()
			if !seats.pauseForClient() {
				t.Errorf("%s: the request kept its seat, want it released", step)
			}
		}
		resume := func(step string, seats *seatHolder) {
			t.Helper()
			if err := seats.resume(); err != nil {
				t.Errorf("%s: got error %v, want none", step, err)
			}
		}

		// Two waits of one request release its seat once.
		first := start()
		pause("first pause", first)
		wantStalled("first pause", 1)
		pause("second pause", first)
		wantStalled("second pause", 1)
		second := start() // gets the released seat
		resume("first resume", first)
		wantStalled("first resume", 1)

		// A request that is paused again while it waits for its seat does not keep the seat.
		resumed := make(chan error, 1)
		go func() { resumed <- first.resume() }()
		synctest.Wait()
		wantStalled("waiting for the seat", 0)
		pause("pause while waiting for the seat", first)
		wantStalled("pause while waiting for the seat", 0)
		second.close()
		if err := <-resumed; err != nil {
			t.Errorf("resume while paused: got error %v, want none", err)
		}
		wantStalled("paused again", 1)
		resume("last resume", first)
		wantStalled("last resume", 0)

		// Ended requests release nothing more.
		first.close()
		pause("pause after the end", first)
		wantStalled("pause after the end", 0)
		second.close()
		pause("pause after two calls of close", second)
		wantStalled("pause after two calls of close", 0)

		// A request keeps its seat if too many others have released theirs.
		third := start()
		for _, name := range []string{"w", "x", "y", "z"} {
			newClient(name).tryAcquire(stalled, 1, 0)
		}
		if third.pauseForClient() {
			t.Error("pause with too many stalled requests: the request released its seat, want it kept")
		}
		wantStalled("pause with too many stalled requests", 4)
		list := &requestinfo.Info{Verb: "list", Path: "/x"}
		if _, _, err := flow.Acquire(t.Context(), newClient("b").User, list, nil); err == nil {
			t.Error("another request got the seat")
		}
		third.close()
	})
}
