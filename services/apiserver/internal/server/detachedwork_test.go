package server

import (
	"context"
	"testing"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/request"
)

// Work for several requests holds a permit once it is large, but not while it waits for another server.
func TestWithPermitHoldsPermitForLargeWork(t *testing.T) {
	limiter := serving.NewLargeRequests(1)
	free := func(step string, want bool) {
		t.Helper()
		got := limiter.EnterNow()
		if got {
			limiter.Leave()
		}
		if got != want {
			t.Errorf("%s: permit free = %t, want %t", step, got, want)
		}
	}
	ctx, end := WithPermit(t.Context(), limiter)
	if !request.Weigh(ctx, largeBody-1) {
		t.Error("small work was not admitted")
	}
	free("small", true)
	back := request.Aside(ctx)
	back()
	free("small after a wait", true)
	for range 2 {
		if !request.Weigh(ctx, largeBody) {
			t.Error("large work was not admitted")
		}
	}
	free("large", false)
	outer := request.Aside(ctx)
	free("first wait", true)
	inner := request.Aside(ctx)
	inner()
	free("after the inner wait", true)
	outer()
	free("after both waits", false)
	end()
	free("after end", true)
}

func TestWithPermitFailsAfterCancellation(t *testing.T) {
	limiter := serving.NewLargeRequests(1)
	limiter.EnterNow()
	ctx, cancel := context.WithCancel(t.Context())
	own, end := WithPermit(ctx, limiter)
	cancel()
	if request.Weigh(own, largeBody) {
		t.Error("canceled work was admitted while the permit was taken")
	}
	end()
	limiter.Leave()
	if !limiter.EnterNow() {
		t.Error("the permit is lost")
	}
}
