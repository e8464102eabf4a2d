package request_test

import (
	"testing"

	"binnacle/services/apiserver/internal/request"
)

// TestDerivedStateIsCopy checks that Derive returns a context with a copy. Changes of either do not
// reach the other, but waits are shared.
func TestDerivedStateIsCopy(t *testing.T) {
	request.FromContext(t.Context()).User = &request.User{Name: "lost"}
	if u := request.UserFrom(t.Context()); u != nil {
		t.Errorf("without a request: got user %v, want nil", u)
	}
	ctx, state := request.Derive(t.Context())
	if u := request.UserFrom(ctx); u != nil {
		t.Errorf("got user %v before authentication, want nil", u)
	}
	ada := &request.User{Name: "ada"}
	eve := &request.User{Name: "eve"}
	state.User = ada
	state.WaitTimes = &request.WaitTimes{}
	as, derived := request.Derive(ctx)
	derived.User = eve
	derived.Warnings = &request.Warnings{}
	if request.UserFrom(as) != eve || request.UserFrom(ctx) != ada {
		t.Errorf("got users %v and %v, want eve and ada", request.UserFrom(as), request.UserFrom(ctx))
	}
	request.Warn(as, "a")
	request.Warn(ctx, "b")
	if got := derived.Warnings.Headers(); len(got) != 1 || state.Warnings != nil {
		t.Errorf("got warnings %q and %v, want one and nil", got, state.Warnings)
	}
	derived.WaitTimes.Add(3)
	if got := state.WaitTimes.Sum(); got != 3 {
		t.Errorf("got waits of %d ns, want 3", got)
	}
}
