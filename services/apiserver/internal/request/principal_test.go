package request_test

import (
	"testing"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

func TestPrincipalOf(t *testing.T) {
	for _, c := range []struct {
		user          request.User
		address, want string
	}{
		{request.User{Name: "alice"}, "192.0.2.1:1", "user alice"},
		{request.User{Name: "system:node:n"}, "192.0.2.1:1", "user system:node:n"},
		{request.User{Name: "system:serviceaccount:b:one"}, "192.0.2.1:1", "namespace b"},
		{request.User{Name: "system:serviceaccount:b:two"}, "192.0.2.9:1", "namespace b"},
		{request.User{Name: "system:serviceaccount:odd"}, "192.0.2.1:1", "user system:serviceaccount:odd"},
		{request.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}, "192.0.2.1:1", "network 192.0.2.1"},
	} {
		if got := request.PrincipalOf(&c.user, c.address); got != c.want {
			t.Errorf("%s: got %q, want %q", c.user.Name, got, c.want)
		}
	}
}

func TestImpersonatedRequestCountsForImpersonator(t *testing.T) {
	ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{})
	request.From(ctx).Principal = request.PrincipalOf(&request.User{Name: "alice"}, "")
	ctx = requesttest.WithUser(ctx, &request.User{Name: "system:serviceaccount:b:one"})
	if got := request.Principal(ctx); got != "user alice" {
		t.Errorf("got principal %q, want user alice", got)
	}
}
