package server_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/telemetry"
)

type fixedUser struct{ user *request.User }

func (a fixedUser) Authenticate(*http.Request) (*request.User, error) { return a.user, nil }

// impersonationRules is an authorizer that allows all verbs but impersonate, and of that a list of
// "[group/]resource[/subresource] [namespace/]name".
type impersonationRules struct {
	allowed []string
	asked   []string
}

func (z *impersonationRules) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	if a.Verb != "impersonate" {
		return authz.Allow, "", nil
	}
	what := a.ResourceName
	if a.Group != "" {
		what = a.Group + "/" + what
	}
	if a.Subresource != "" {
		what += "/" + a.Subresource
	}
	if a.Namespace != "" {
		what += " " + a.Namespace + "/" + a.Name
	} else {
		what += " " + a.Name
	}
	if a.User.Name != "boss" || !a.Resource {
		return authz.Deny, "only the boss", nil
	}
	z.asked = append(z.asked, what)
	if slices.Contains(z.allowed, what) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// TestImpersonation checks which user the handler sees, which permissions are checked, and which
// impersonation headers are rejected.
func TestImpersonation(t *testing.T) {
	catalog, err := builtin.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		headers []string
		allowed []string
		asked   []string // all of allowed when nil
		seen    *request.User
		code    int
		message string
	}{
		"no impersonation": {seen: &request.User{Name: "boss"}},
		"a user": {
			headers: []string{"Impersonate-User", "alice"}, allowed: []string{"users alice"},
			seen: &request.User{Name: "alice", Groups: []string{"system:authenticated"}},
		},
		"all of a user": {
			headers: []string{"Impersonate-User", "alice", "Impersonate-Group", "dev", "Impersonate-Group", "ops", "Impersonate-Uid", "u1",
				"Impersonate-Extra-Scopes", "a", "Impersonate-Extra-Scopes", "b", "Impersonate-Extra-Acme.com%2fproject", "p"},
			allowed: []string{"users alice", "groups dev", "groups ops", "authentication.k8s.io/userextras/acme.com/project p",
				"authentication.k8s.io/userextras/scopes a", "authentication.k8s.io/userextras/scopes b", "authentication.k8s.io/uids u1"},
			seen: &request.User{
				Name:   "alice",
				UID:    "u1",
				Groups: []string{"dev", "ops", "system:authenticated"},
				Extra:  map[string][]string{"scopes": {"a", "b"}, "acme.com/project": {"p"}},
			},
		},
		"a service account": {
			headers: []string{"Impersonate-User", "system:serviceaccount:ns:a"}, allowed: []string{"serviceaccounts ns/a"},
			seen: &request.User{
				Name:   "system:serviceaccount:ns:a",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"},
			},
		},
		"a service account in other groups": {
			headers: []string{"Impersonate-User", "system:serviceaccount:ns:a", "Impersonate-Group", "x"},
			allowed: []string{"serviceaccounts ns/a", "groups x"},
			seen:    &request.User{Name: "system:serviceaccount:ns:a", Groups: []string{"x", "system:authenticated"}},
		},
		"anonymous": {
			headers: []string{"Impersonate-User", "system:anonymous"}, allowed: []string{"users system:anonymous"},
			seen: &request.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}},
		},
		"anonymous budget the authenticated": {
			headers: []string{"Impersonate-User", "system:anonymous", "Impersonate-Group", "system:authenticated"},
			allowed: []string{"users system:anonymous", "groups system:authenticated"},
			seen:    &request.User{Name: "system:anonymous", Groups: []string{"system:authenticated", "system:unauthenticated"}},
		},
		"a name that no service account has": {
			headers: []string{"Impersonate-User", "system:serviceaccount:ns:Bad_Name"},
			allowed: []string{"users system:serviceaccount:ns:Bad_Name"},
			seen:    &request.User{Name: "system:serviceaccount:ns:Bad_Name", Groups: []string{"system:authenticated"}},
		},
		"an unauthenticated user": {
			headers: []string{"Impersonate-User", "alice", "Impersonate-Group", "system:unauthenticated"},
			allowed: []string{"users alice", "groups system:unauthenticated"},
			seen:    &request.User{Name: "alice", Groups: []string{"system:unauthenticated"}},
		},
		"not that user": {
			headers: []string{"Impersonate-User", "alice"},
			asked:   []string{"users alice"},
			code:    403,
			message: `users "alice" is forbidden: User "boss" cannot impersonate resource "users" in API group "" at the cluster scope`,
		},
		"not that account": {
			headers: []string{"Impersonate-User", "system:serviceaccount:ns:a"},
			asked:   []string{"serviceaccounts ns/a"},
			code:    403,
			message: `serviceaccounts "a" is forbidden: User "boss" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "ns"`,
		},
		"not that group": {
			headers: []string{"Impersonate-User", "alice", "Impersonate-Group", "system:masters"},
			allowed: []string{"users alice"},
			asked:   []string{"users alice", "groups system:masters"},
			code:    403,
			message: `groups "system:masters" is forbidden: User "boss" cannot impersonate resource "groups" in API group "" at the cluster scope`,
		},
		"not that extra": {
			headers: []string{"Impersonate-User", "alice", "Impersonate-Extra-Scopes", "a"},
			allowed: []string{"users alice"},
			asked:   []string{"users alice", "authentication.k8s.io/userextras/scopes a"},
			code:    403,
			message: `userextras.authentication.k8s.io "a" is forbidden: User "boss" cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope`,
		},
		"not that uid": {
			headers: []string{"Impersonate-User", "alice", "Impersonate-Uid", "u1"},
			allowed: []string{"users alice"},
			asked:   []string{"users alice", "authentication.k8s.io/uids u1"},
			code:    403,
			message: `uids.authentication.k8s.io "u1" is forbidden: User "boss" cannot impersonate resource "uids" in API group "authentication.k8s.io" at the cluster scope`,
		},
		"a group without a user": {headers: []string{"Impersonate-Group", "dev"}, code: 400, message: "without impersonating a user"},
		"extra without a user":   {headers: []string{"Impersonate-Extra-X", "y"}, code: 400, message: "without impersonating a user"},
		"an extra written twice": {
			headers: []string{"Impersonate-User", "x", "Impersonate-Extra-Foo", "1", "Impersonate-Extra-%66oo", "2"},
			allowed: []string{"users x", "authentication.k8s.io/userextras/foo 2", "authentication.k8s.io/userextras/foo 1"},
			seen:    &request.User{Name: "x", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"foo": {"2", "1"}}},
		},
		"a uid without a user": {headers: []string{"Impersonate-Uid", "y"}, code: 400, message: "without impersonating a user"},
	} {
		t.Run(name, func(t *testing.T) {
			var seen *request.User
			z := &impersonationRules{allowed: tc.allowed}
			h, err := server.Handler(server.Config{
				Mux: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					seen = request.UserFrom(r.Context())
					for h := range r.Header {
						if strings.HasPrefix(h, "Impersonate-") {
							t.Errorf("handler received header %s, want it removed", h)
						}
					}
				}),
				Responder:      responsewriters.Responder{Codec: c},
				Authenticator:  fixedUser{&request.User{Name: "boss"}},
				Authorizer:     z,
				Metrics:        telemetry.NewMetrics(prometheus.NewRegistry()),
				Kinds:          apiset.NewLive(nil),
				Logger:         slog.New(slog.DiscardHandler),
				RequestTimeout: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
			for i := 0; i+1 < len(tc.headers); i += 2 {
				r.Header.Add(tc.headers[i], tc.headers[i+1])
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			want := tc.asked
			if want == nil {
				want = tc.allowed
			}
			if !slices.Equal(z.asked, want) {
				t.Errorf("checked permissions: got %q, want %q", z.asked, want)
			}
			if tc.code == 0 {
				if !reflect.DeepEqual(seen, tc.seen) {
					t.Errorf("got user %+v, want %+v: %s", seen, tc.seen, w.Body)
				}
				return
			}
			var st metav1.Status
			if err := json.Unmarshal(w.Body.Bytes(), &st); err != nil || w.Code != tc.code ||
				!strings.Contains(st.Message, tc.message) || seen != nil {
				t.Errorf("got %d %q (%v), want %d %q", w.Code, st.Message, err, tc.code, tc.message)
			}
		})
	}
}
