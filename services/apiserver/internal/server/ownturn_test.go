package server

import (
	"context"
	"testing"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/request"
)

// TestWithTurn: what is done for several requests has a turn once it is large, but not while it waits for others.
func TestWithTurn(t *testing.T) {
	turns := serving.NewLargeRequests(1)
	free := func(step string, want bool) {
		t.Helper()
		got := turns.EnterNow()
		if got {
			turns.Leave()
		}
		if got != want {
			t.Errorf("%s: the turn is free: %t", step, got)
		}
	}
	ctx, end := WithTurn(t.Context(), turns)
	if !request.Weigh(ctx, largeBody-1) {
		t.Error("small work may not begin")
	}
	free("small", true)
	back := request.Aside(ctx)
	back()
	free("small, and waited", true)
	for range 2 {
		if !request.Weigh(ctx, largeBody) {
			t.Error("large work may not begin")
		}
	}
	free("large", false)
	outer := request.Aside(ctx)
	free("waits", true)
	inner := request.Aside(ctx)
	inner()
	free("waits still", true)
	outer()
	free("large again", false)
	end()
	free("over", true)
}

// TestWithTurnOfWhoLeft: there is none for work that ends before.
func TestWithTurnOfWhoLeft(t *testing.T) {
	turns := serving.NewLargeRequests(1)
	turns.EnterNow()
	ctx, cancel := context.WithCancel(t.Context())
	own, end := WithTurn(ctx, turns)
	cancel()
	if request.Weigh(own, largeBody) {
		t.Error("it has a turn that somebody else has")
	}
	end()
	turns.Leave()
	if !turns.EnterNow() {
		t.Error("the turn is gone")
	}
}
