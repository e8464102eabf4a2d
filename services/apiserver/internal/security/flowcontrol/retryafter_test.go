package flowcontrol_test

import (
	"errors"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// TestRetryAfterFollowsRejectionRate checks that Retry-After doubles with more than three rejections
// per second and decreases with fewer than one.
func TestRetryAfterFollowsRejectionRate(t *testing.T) {
	fixture := newFixture(t, 2, newRejectingLevel("l", 5)) // one seat
	held, err := fixture.acquire("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	defer fixture.Release(held)
	for i, step := range []struct {
		pass           time.Duration
		rejected, want int
	}{
		{pass: 0, rejected: 4, want: 1},
		{pass: time.Second, rejected: 6, want: 2},
		{pass: 2 * time.Second, rejected: 1, want: 2},
		{pass: 3 * time.Second, rejected: 1, want: 1},
	} {
		fixture.clock.advance(step.pass)
		for range step.rejected {
			_, err := fixture.acquire("a", "l")
			var no *flowcontrol.Rejection
			if !errors.As(err, &no) || no.RetryAfter != step.want {
				t.Fatalf("step %d: got %v, %+v, want %d seconds", i, err, no, step.want)
			}
		}
	}
}
