package flowcontrol_test

import (
	"context"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

// TestLevelHasDefaultSharesAndNoQueues checks that by default a level has 30 shares, borrows without limit and has no
// queues.
func TestLevelHasDefaultSharesAndNoQueues(t *testing.T) {
	half, few := int32(50), newQueuingLevel("few", 25, queuing{queues: 1, handSize: 1, queueLength: 1})
	few.Spec.Limited.BorrowingLimitPercent = &half
	few.Spec.Limited.LimitResponse.Type = flowcontrolv1.LimitResponseTypeReject // ignores the queues
	bare, empty := newRejectingLevel("bare", 0), newRejectingLevel("empty", 0)
	bare.Spec.Limited = nil
	empty.Spec.Limited = &flowcontrolv1.LimitedPriorityLevelConfiguration{}
	empty.Spec.Limited.LimitResponse.Type = flowcontrolv1.LimitResponseTypeQueue // without queues
	fixture := newFixture(t, 90, bare, empty, few)                               // catch-all has 5
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for level, want := range map[string]struct{ nominal, upper int }{
		"bare":  {nominal: 30, upper: 120},
		"empty": {nominal: 30, upper: 120},
		"few":   {nominal: 25, upper: 38},
	} {
		fixture.wantGauge("nominal_limit_seats", level, float64(want.nominal))
		fixture.wantGauge("lower_limit_seats", level, float64(want.nominal)) // lends nothing
		fixture.wantGauge("upper_limit_seats", level, float64(want.upper))
		for range want.nominal {
			request, err := fixture.acquire("a", level)
			if err != nil {
				t.Fatal(err)
			}
			defer fixture.Release(request)
		}
		if _, _, err := fixture.Acquire(ctx, newUser("a", level), list, oneSeat); rejectionReason(err) != "concurrency-limit" {
			t.Errorf("beyond the limit of %s: got %v, want concurrency-limit", level, err)
		}
	}
}
