package overload

import (
	"context"
	"testing"

	"binnacle/services/apiserver/internal/request"
)

// Work for several requests holds a permit once it is large, but not
// while it waits for another server.
func TestWithPermitHoldsPermitForLargeWork(t *testing.T) {
	permits := newPermits(1)
	free := func(step string, want bool) {
		t.Helper()
		if got := isFree(permits); got != want {
			t.Errorf("%s: permit free = %t, want %t", step, got, want)
		}
	}
	ctx, end := WithPermit(t.Context(), permits)
	if request.Estimate(ctx, largeBody-1) != nil {
		t.Error("small work was not admitted")
	}
	free("small", true)
	resume := request.Suspend(ctx)
	resume()
	free("small after a wait", true)
	for range 2 {
		if request.Estimate(ctx, largeBody) != nil {
			t.Error("large work was not admitted")
		}
	}
	free("large", false)
	outer := request.Suspend(ctx)
	free("first wait", true)
	inner := request.Suspend(ctx)
	inner()
	free("after the inner wait", true)
	outer()
	free("after both waits", false)
	end()
	free("after end", true)
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
