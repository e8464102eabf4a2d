package flowcontrol_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// TestBusyLevelBorrowsSeatsOfQuietLevel checks that a busy level borrows seats of a quiet one, and that these seats
// return when the demand ends.
func TestBusyLevelBorrowsSeatsOfQuietLevel(t *testing.T) {
	half := int32(50)
	oneQueue := queuing{queues: 1, handSize: 1, queueLength: 200}
	busy, quiet := newQueuingLevel("busy", 45, oneQueue), newQueuingLevel("quiet", 50, oneQueue)
	busy.Spec.Limited.BorrowingLimitPercent = nil
	quiet.Spec.Limited.LendablePercent = &half
	fixture := newFixture(t, 100, busy, quiet)
	var running []*flowcontrol.Request
	fillLevel := func(level string) (filled int) {
		for {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			var request *flowcontrol.Request
			go func() {
				var err error
				request, _, err = fixture.Acquire(ctx, newUser("a", level), list, oneSeat)
				done <- err
			}()
			for fixture.waitingRequests() == 0 && len(done) == 0 {
				time.Sleep(50 * time.Microsecond)
			}
			cancel()
			if <-done != nil {
				return filled
			}
			running = append(running, request)
			filled++
		}
	}
	if filled := fillLevel("busy"); filled != 45 {
		t.Errorf("got %d seats at first, want 45", filled)
	}
	fixture.clock.advance(flowcontrol.Period)
	fixture.Adjust()
	// All 100 seats are divided as 45 to 25 to 5, the demand or the lower limit.
	if filled := fillLevel("busy"); filled != 15 {
		t.Errorf("got %d borrowed seats, want 15", filled)
	}
	for _, request := range running {
		fixture.Release(request)
	}
	running = nil
	if filled := fillLevel("quiet"); filled != 33 {
		t.Errorf("quiet level: got %d seats at once, want 33", filled)
	}
	fixture.clock.advance(flowcontrol.Period)
	fixture.Adjust() // the busy level has no demand now, so lent seats return
	if filled := fillLevel("quiet"); filled < 5 {
		t.Errorf("got %d seats back in the quiet level, want at least 5", filled)
	}
}

// TestRemovedLevelServesItsRequests checks that a removed level exists until its last request has
// ended.
func TestRemovedLevelServesItsRequests(t *testing.T) {
	fixture := newFixture(t, 100, newRejectingLevel("l", 5))
	request, err := fixture.acquire("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	fixture.SetConfig(flowcontrol.Compile(nil, nil))
	var b strings.Builder
	if err := fixture.DumpLevels(&b); err != nil {
		t.Fatal(err)
	}
	want := "l,                 0,            false,  true,        0,               1,                 1,                  0,                0,                0\n"
	if !strings.Contains(b.String(), want) {
		t.Errorf("want %q in:\n%s", want, b.String())
	}
	fixture.Release(request)
	fixture.Adjust()
	b.Reset()
	if err := fixture.DumpLevels(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\nl,") {
		t.Errorf("got the removed level, want none:\n%s", b.String())
	}
}
