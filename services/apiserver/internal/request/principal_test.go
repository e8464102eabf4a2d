package request_test

import (
	"testing"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// TestPrincipalOf checks the key of each kind of user.
func TestPrincipalOf(t *testing.T) {
	for _, test := range []struct {
		user          request.User
		address, want string
	}{
		{user: request.User{Name: "alice"}, address: "192.0.2.1:1", want: "user alice"},
		{user: request.User{Name: "system:node:n"}, address: "192.0.2.1:1", want: "user system:node:n"},
		{user: request.User{Name: "system:serviceaccount:b:one"}, address: "192.0.2.1:1", want: "namespace b"},
		{user: request.User{Name: "system:serviceaccount:b:two"}, address: "192.0.2.9:1", want: "namespace b"},
		{user: request.User{Name: "system:serviceaccount:odd"}, address: "192.0.2.1:1", want: "user system:serviceaccount:odd"},
		{
			user:    request.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}},
			address: "192.0.2.1:1",
			want:    "network 192.0.2.1",
		},
	} {
		if got := request.PrincipalOf(&test.user, test.address); got != test.want {
			t.Errorf("PrincipalOf(%q, %q) = %q, want %q", test.user.Name, test.address, got, test.want)
		}
	}
}

// TestImpersonatedRequestCountsForImpersonator checks that impersonation does not change the
// principal.
func TestImpersonatedRequestCountsForImpersonator(t *testing.T) {
	ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{})
	request.FromContext(ctx).Principal = request.PrincipalOf(&request.User{Name: "alice"}, "")
	ctx = requesttest.WithUser(ctx, &request.User{Name: "system:serviceaccount:b:one"})
	if got := request.Principal(ctx); got != "user alice" {
		t.Errorf("got principal %q, want user alice", got)
	}
}
