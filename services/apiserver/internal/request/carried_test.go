package request_test

import (
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// What filters note for all that follow is noted once; who puts another one before it is seen
// by those who follow him alone.
func TestWhatRequestsCarry(t *testing.T) {
	if request.SetUser(t.Context(), &request.User{}) || request.SetWarnings(t.Context()) {
		t.Error("noted where there is no room")
	}
	ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{})
	if u := request.UserFrom(ctx); u != nil {
		t.Errorf("%v asks before it is known who asks", u)
	}
	ada, eve := &request.User{Name: "ada"}, &request.User{Name: "eve"}
	if !request.SetUser(ctx, ada) || request.SetUser(ctx, eve) || request.UserFrom(ctx) != ada {
		t.Errorf("%v asks", request.UserFrom(ctx))
	}
	as := request.WithUser(ctx, eve)
	if request.UserFrom(as) != eve || request.UserFrom(ctx) != ada {
		t.Errorf("%v asks, as %v", request.UserFrom(ctx), request.UserFrom(as))
	}
	within := requestinfo.Carry(as, &requestinfo.Info{})
	if request.UserFrom(within) != eve || request.SetUser(within, ada) {
		t.Errorf("%v asks within what %v asks", request.UserFrom(within), eve)
	}
	request.Warn(ctx, "before")
	if !request.SetWarnings(ctx) || request.SetWarnings(ctx) {
		t.Error("warnings are not gathered once")
	}
	request.Warn(as, "a")
	inner, w := request.WithWarnings(ctx)
	request.Warn(inner, "b")
	if got := request.WarningsFrom(ctx).Headers(); len(got) != 1 || !strings.Contains(got[0], "\"a\"") {
		t.Errorf("warned of %q", got)
	}
	if got := w.Headers(); len(got) != 1 || !strings.Contains(got[0], "\"b\"") {
		t.Errorf("warned of %q within", got)
	}
}
