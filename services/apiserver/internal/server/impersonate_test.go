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

// fixedUser is an authenticator that returns the same user for each request.
type fixedUser struct{ user *request.User }

func (a fixedUser) Authenticate(*http.Request) (*request.User, error) { return a.user, nil }

// impersonationRules is an authorizer that allows all verbs but impersonate. The user "boss" may
// impersonate what allowed lists.
type impersonationRules struct {
	allowed []string // entries "[group/]resource[/subresource] [namespace/]name"
	checked []string // all checks of the verb impersonate, in the same form
}

func (z *impersonationRules) Authorize(_ context.Context, attributes *authz.Attributes) (authz.Decision, string, error) {
	if attributes.Verb != "impersonate" {
		return authz.Allow, "", nil
	}
	entry := attributes.ResourceName
	if attributes.Group != "" {
		entry = attributes.Group + "/" + entry
	}
	if attributes.Subresource != "" {
		entry += "/" + attributes.Subresource
	}
	if attributes.Namespace != "" {
		entry += " " + attributes.Namespace + "/" + attributes.Name
	} else {
		entry += " " + attributes.Name
	}
	if attributes.User.Name != "boss" || !attributes.Resource {
		return authz.Deny, "only the boss", nil
	}
	z.checked = append(z.checked, entry)
	if slices.Contains(z.allowed, entry) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// TestImpersonation checks which user the handler sees, which permissions are checked, and which
// impersonation headers are rejected.
func TestImpersonation(t *testing.T) {
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		headers     []string // alternately a name and a value
		allowed     []string // what the client may impersonate
		wantChecked []string // the expected checks; nil means all of allowed
		wantUser    *request.User
		wantCode    int    // 0 means that the handler is called with wantUser
		wantMessage string // part of the error
	}{
		"no impersonation": {wantUser: &request.User{Name: "boss"}},
		"a user": {
			headers: []string{"Impersonate-User", "alice"}, allowed: []string{"users alice"},
			wantUser: &request.User{Name: "alice", Groups: []string{"system:authenticated"}},
		},
		"all of a user": {
			headers: []string{"Impersonate-User", "alice", "Impersonate-Group", "dev", "Impersonate-Group", "ops", "Impersonate-Uid", "u1",
				"Impersonate-Extra-Scopes", "a", "Impersonate-Extra-Scopes", "b", "Impersonate-Extra-Acme.com%2fproject", "p"},
			allowed: []string{"users alice", "groups dev", "groups ops", "authentication.k8s.io/userextras/acme.com/project p",
				"authentication.k8s.io/userextras/scopes a", "authentication.k8s.io/userextras/scopes b", "authentication.k8s.io/uids u1"},
			wantUser: &request.User{
				Name:   "alice",
				UID:    "u1",
				Groups: []string{"dev", "ops", "system:authenticated"},
				Extra:  map[string][]string{"scopes": {"a", "b"}, "acme.com/project": {"p"}},
			},
		},
		"a service account": {
			headers: []string{"Impersonate-User", "system:serviceaccount:ns:a"}, allowed: []string{"serviceaccounts ns/a"},
			wantUser: &request.User{
				Name:   "system:serviceaccount:ns:a",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"},
			},
		},
		"a service account in other groups": {
			headers:  []string{"Impersonate-User", "system:serviceaccount:ns:a", "Impersonate-Group", "x"},
			allowed:  []string{"serviceaccounts ns/a", "groups x"},
			wantUser: &request.User{Name: "system:serviceaccount:ns:a", Groups: []string{"x", "system:authenticated"}},
		},
		"anonymous": {
			headers: []string{"Impersonate-User", "system:anonymous"}, allowed: []string{"users system:anonymous"},
			wantUser: &request.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}},
		},
		"anonymous in the group of the authenticated": {
			headers:  []string{"Impersonate-User", "system:anonymous", "Impersonate-Group", "system:authenticated"},
			allowed:  []string{"users system:anonymous", "groups system:authenticated"},
			wantUser: &request.User{Name: "system:anonymous", Groups: []string{"system:authenticated", "system:unauthenticated"}},
		},
		"a name that no service account has": {
			headers:  []string{"Impersonate-User", "system:serviceaccount:ns:Bad_Name"},
			allowed:  []string{"users system:serviceaccount:ns:Bad_Name"},
			wantUser: &request.User{Name: "system:serviceaccount:ns:Bad_Name", Groups: []string{"system:authenticated"}},
		},
		"an unauthenticated user": {
			headers:  []string{"Impersonate-User", "alice", "Impersonate-Group", "system:unauthenticated"},
			allowed:  []string{"users alice", "groups system:unauthenticated"},
			wantUser: &request.User{Name: "alice", Groups: []string{"system:unauthenticated"}},
		},
		"not that user": {
			headers:     []string{"Impersonate-User", "alice"},
			wantChecked: []string{"users alice"},
			wantCode:    403,
			wantMessage: `users "alice" is forbidden: User "boss" cannot impersonate resource "users" in API group "" at the cluster scope`,
		},
		"not that account": {
			headers:     []string{"Impersonate-User", "system:serviceaccount:ns:a"},
			wantChecked: []string{"serviceaccounts ns/a"},
			wantCode:    403,
			wantMessage: `serviceaccounts "a" is forbidden: User "boss" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "ns"`,
		},
		"not that group": {
			headers:     []string{"Impersonate-User", "alice", "Impersonate-Group", "system:masters"},
			allowed:     []string{"users alice"},
			wantChecked: []string{"users alice", "groups system:masters"},
			wantCode:    403,
			wantMessage: `groups "system:masters" is forbidden: User "boss" cannot impersonate resource "groups" in API group "" at the cluster scope`,
		},
		"not that extra": {
			headers:     []string{"Impersonate-User", "alice", "Impersonate-Extra-Scopes", "a"},
			allowed:     []string{"users alice"},
			wantChecked: []string{"users alice", "authentication.k8s.io/userextras/scopes a"},
			wantCode:    403,
			wantMessage: `userextras.authentication.k8s.io "a" is forbidden: User "boss" cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope`,
		},
		"not that uid": {
			headers:     []string{"Impersonate-User", "alice", "Impersonate-Uid", "u1"},
			allowed:     []string{"users alice"},
			wantChecked: []string{"users alice", "authentication.k8s.io/uids u1"},
			wantCode:    403,
			wantMessage: `uids.authentication.k8s.io "u1" is forbidden: User "boss" cannot impersonate resource "uids" in API group "authentication.k8s.io" at the cluster scope`,
		},
		"a group without a user": {headers: []string{"Impersonate-Group", "dev"}, wantCode: 400, wantMessage: "without impersonating a user"},
		"extra without a user":   {headers: []string{"Impersonate-Extra-X", "y"}, wantCode: 400, wantMessage: "without impersonating a user"},
		"an extra written twice": {
			headers:  []string{"Impersonate-User", "x", "Impersonate-Extra-Foo", "1", "Impersonate-Extra-%66oo", "2"},
			allowed:  []string{"users x", "authentication.k8s.io/userextras/foo 2", "authentication.k8s.io/userextras/foo 1"},
			wantUser: &request.User{Name: "x", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"foo": {"2", "1"}}},
		},
		"a uid without a user": {headers: []string{"Impersonate-Uid", "y"}, wantCode: 400, wantMessage: "without impersonating a user"},
	} {
		t.Run(name, func(t *testing.T) {
			var seen *request.User
			rules := &impersonationRules{allowed: tc.allowed}
			handler, err := server.Handler(server.Config{
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
				Authorizer:     rules,
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
			responseRecorder := httptest.NewRecorder()
			handler.ServeHTTP(responseRecorder, r)
			want := tc.wantChecked
			if want == nil {
				want = tc.allowed
			}
			if !slices.Equal(rules.checked, want) {
				t.Errorf("checked permissions: got %q, want %q", rules.checked, want)
			}
			if tc.wantCode == 0 {
				if !reflect.DeepEqual(seen, tc.wantUser) {
					t.Errorf("got user %+v, want %+v: %s", seen, tc.wantUser, responseRecorder.Body)
				}
				return
			}
			var st metav1.Status
			if err := json.Unmarshal(responseRecorder.Body.Bytes(), &st); err != nil || responseRecorder.Code != tc.wantCode ||
				!strings.Contains(st.Message, tc.wantMessage) || seen != nil {
				t.Errorf("got %d %q (%v), want %d %q", responseRecorder.Code, st.Message, err, tc.wantCode, tc.wantMessage)
			}
		})
	}
}
