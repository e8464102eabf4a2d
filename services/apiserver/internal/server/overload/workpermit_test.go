package overload

import (
	"context"
	"testing"

	"binnacle/services/apiserver/internal/request"
)

// TestWithPermitHoldsPermitForLargeWork checks that work for several requests holds a permit once it
// is large, but not while it waits for another server.
func TestWithPermitHoldsPermitForLargeWork(t *testing.T) {
	permits := newPermits(1)
	wantFree := func(step string) {
		t.Helper()
		if !isFree(permits) {
			t.Errorf("%s: the permit is taken, want it free", step)
		}
	}
	wantTaken := func(step string) {
		t.Helper()
		if isFree(permits) {
			t.Errorf("%s: the permit is free, want it taken", step)
		}
	}
	ctx, end := WithPermit(t.Context(), permits)
	if request.Estimate(ctx, largeBody-1) != nil {
		t.Error("small work was not admitted")
	}
	wantFree("small")
	resume := request.Suspend(ctx)
	resume()
	wantFree("small after a wait")
	for range 2 {
		if request.Estimate(ctx, largeBody) != nil {
			t.Error("large work was not admitted")
		}
	}
	wantTaken("large")
	resumeOuter := request.Suspend(ctx)
	wantFree("first wait")
	resumeInner := request.Suspend(ctx)
	resumeInner()
	wantFree("after the inner wait")
	resumeOuter()
	wantTaken("after both waits")
	end()
	wantFree("after end")
}

// TestWithPermitFailsAfterCancellation checks that canceled work that waits for a permit fails and
// loses no permit.
func TestWithPermitFailsAfterCancellation(t *testing.T) {
	permits := newPermits(1)
	permits.TryAcquire(permit)
	ctx, cancel := context.WithCancel(t.Context())
	workCtx, end := WithPermit(ctx, permits)
	cancel()
	if request.Estimate(workCtx, largeBody) == nil {
		t.Error("canceled work was admitted while the permit was taken")
	}
	end()
	permits.Release(permit)
	if !isFree(permits) {
		t.Error("the permit is lost")
	}
}
