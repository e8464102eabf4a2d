package request_test

import (
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// Values in the request state are set once. A With function overrides them in derived contexts only.
func TestRequestStateIsSetOnce(t *testing.T) {
	if request.SetUser(t.Context(), &request.User{}) || request.SetWarnings(t.Context()) {
		t.Error("a value was set in a context without state")
	}
	ctx := requestinfo.WithState(t.Context(), &requestinfo.Info{})
	if u := request.UserFrom(ctx); u != nil {
		t.Errorf("got user %v before authentication", u)
	}
	ada, eve := &request.User{Name: "ada"}, &request.User{Name: "eve"}
	if !request.SetUser(ctx, ada) || request.SetUser(ctx, eve) || request.UserFrom(ctx) != ada {
		t.Errorf("got user %v, want ada", request.UserFrom(ctx))
	}
	as := request.WithUser(ctx, eve)
	if request.UserFrom(as) != eve || request.UserFrom(ctx) != ada {
		t.Errorf("got users %v and %v, want ada and eve", request.UserFrom(ctx), request.UserFrom(as))
	}
	within := requestinfo.WithState(as, &requestinfo.Info{})
	if request.UserFrom(within) != eve || request.SetUser(within, ada) {
		t.Errorf("nested request: got user %v, want eve", request.UserFrom(within))
	}
	request.Warn(ctx, "before")
	if !request.SetWarnings(ctx) || request.SetWarnings(ctx) {
		t.Error("warnings were not attached exactly once")
	}
	request.Warn(as, "a")
	inner, w := request.WithWarnings(ctx)
	request.Warn(inner, "b")
	if got := request.WarningsFrom(ctx).Headers(); len(got) != 1 || !strings.Contains(got[0], "\"a\"") {
		t.Errorf("got warnings %q, want a", got)
	}
	if got := w.Headers(); len(got) != 1 || !strings.Contains(got[0], "\"b\"") {
		t.Errorf("got inner warnings %q, want b", got)
	}
}
