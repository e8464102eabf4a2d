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

func (f fixedUser) Authenticate(*http.Request) (*request.User, error) { return f.user, nil }

// impersonationRules is an authorizer that allows all verbs but impersonate. The user "boss" may
// impersonate what allowed lists.
type impersonationRules struct {
	allowed []string // entries "[group/]resource[/subresource] [namespace/]name"
	checked []string // all checks of the verb impersonate, in the same form
}

func (i *impersonationRules) Authorize(_ context.Context, attributes *authz.Attributes) (authz.Decision, string, error) {
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
	i.checked = append(i.checked, entry)
	if slices.Contains(i.allowed, entry) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// TestImpersonationNeedsPermissionForEachPart checks the user that the handler sees, the permissions
// that are checked, and the impersonation headers that are rejected.
func TestImpersonationNeedsPermissionForEachPart(t *testing.T) {
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
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
		"user": {
			headers: []string{"Impersonate-User", "alice"}, allowed: []string{"users alice"},
			wantUser: &request.User{Name: "alice", Groups: []string{"system:authenticated"}},
		},
		"user with groups, uid and extra": {
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
		"service account": {
			headers: []string{"Impersonate-User", "system:serviceaccount:ns:a"}, allowed: []string{"serviceaccounts ns/a"},
			wantUser: &request.User{
				Name:   "system:serviceaccount:ns:a",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"},
			},
		},
		"service account with a group": {
			headers:  []string{"Impersonate-User", "system:serviceaccount:ns:a", "Impersonate-Group", "x"},
			allowed:  []string{"serviceaccounts ns/a", "groups x"},
			wantUser: &request.User{Name: "system:serviceaccount:ns:a", Groups: []string{"x", "system:authenticated"}},
		},
		"anonymous user": {
			headers: []string{"Impersonate-User", "system:anonymous"}, allowed: []string{"users system:anonymous"},
			wantUser: &request.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}},
		},
		"anonymous user in the group of authenticated users": {
			headers:  []string{"Impersonate-User", "system:anonymous", "Impersonate-Group", "system:authenticated"},
			allowed:  []string{"users system:anonymous", "groups system:authenticated"},
			wantUser: &request.User{Name: "system:anonymous", Groups: []string{"system:authenticated", "system:unauthenticated"}},
		},
		"invalid service account name": {
			headers:  []string{"Impersonate-User", "system:serviceaccount:ns:Bad_Name"},
			allowed:  []string{"users system:serviceaccount:ns:Bad_Name"},
			wantUser: &request.User{Name: "system:serviceaccount:ns:Bad_Name", Groups: []string{"system:authenticated"}},
		},
		"user in the group of unauthenticated users": {
			headers:  []string{"Impersonate-User", "alice", "Impersonate-Group", "system:unauthenticated"},
			allowed:  []string{"users alice", "groups system:unauthenticated"},
			wantUser: &request.User{Name: "alice", Groups: []string{"system:unauthenticated"}},
		},
		"forbidden user": {
			headers:     []string{"Impersonate-User", "alice"},
			wantChecked: []string{"users alice"},
			wantCode:    403,
			wantMessage: `users "alice" is forbidden: User "boss" cannot impersonate resource "users" in API group "" at the cluster scope`,
		},
		"forbidden service account": {
			headers:     []string{"Impersonate-User", "system:serviceaccount:ns:a"},
			wantChecked: []string{"serviceaccounts ns/a"},
			wantCode:    403,
			wantMessage: `serviceaccounts "a" is forbidden: User "boss" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "ns"`,
		},
		"forbidden group": {
			headers:     []string{"Impersonate-User", "alice", "Impersonate-Group", "system:masters"},
			allowed:     []string{"users alice"},
			wantChecked: []string{"users alice", "groups system:masters"},
			wantCode:    403,
			wantMessage: `groups "system:masters" is forbidden: User "boss" cannot impersonate resource "groups" in API group "" at the cluster scope`,
		},
		"forbidden extra": {
			headers:     []string{"Impersonate-User", "alice", "Impersonate-Extra-Scopes", "a"},
			allowed:     []string{"users alice"},
			wantChecked: []string{"users alice", "authentication.k8s.io/userextras/scopes a"},
			wantCode:    403,
			wantMessage: `userextras.authentication.k8s.io "a" is forbidden: User "boss" cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope`,
		},
		"forbidden uid": {
			headers:     []string{"Impersonate-User", "alice", "Impersonate-Uid", "u1"},
			allowed:     []string{"users alice"},
			wantChecked: []string{"users alice", "authentication.k8s.io/uids u1"},
			wantCode:    403,
			wantMessage: `uids.authentication.k8s.io "u1" is forbidden: User "boss" cannot impersonate resource "uids" in API group "authentication.k8s.io" at the cluster scope`,
		},
		"group without a user": {headers: []string{"Impersonate-Group", "dev"}, wantCode: 400, wantMessage: "without impersonating a user"},
		"extra without a user": {headers: []string{"Impersonate-Extra-X", "y"}, wantCode: 400, wantMessage: "without impersonating a user"},
		"extra key in two spellings": {
			headers:  []string{"Impersonate-User", "x", "Impersonate-Extra-Foo", "1", "Impersonate-Extra-%66oo", "2"},
			allowed:  []string{"users x", "authentication.k8s.io/userextras/foo 2", "authentication.k8s.io/userextras/foo 1"},
			wantUser: &request.User{Name: "x", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"foo": {"2", "1"}}},
		},
		"uid without a user": {headers: []string{"Impersonate-Uid", "y"}, wantCode: 400, wantMessage: "without impersonating a user"},
	} {
		t.Run(name, func(t *testing.T) {
			var seen *request.User
			rules := &impersonationRules{allowed: tc.allowed}
			handler, err := server.Handler(server.Config{
				Mux: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					seen = request.UserFrom(r.Context())
					for headerName := range r.Header {
						if strings.HasPrefix(headerName, "Impersonate-") {
							t.Errorf("handler received header %s, want it removed", headerName)
						}
					}
				}),
				Responder:      responsewriters.Responder{Codec: apiCodec},
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
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, r)
			want := tc.wantChecked
			if want == nil {
				want = tc.allowed
			}
			if !slices.Equal(rules.checked, want) {
				t.Errorf("checked permissions: got %q, want %q", rules.checked, want)
			}
			if tc.wantCode == 0 {
				if !reflect.DeepEqual(seen, tc.wantUser) {
					t.Errorf("got user %+v, want %+v: %s", seen, tc.wantUser, response.Body)
				}
				return
			}
			var reported metav1.Status
			if err := json.Unmarshal(response.Body.Bytes(), &reported); err != nil || response.Code != tc.wantCode ||
				!strings.Contains(reported.Message, tc.wantMessage) || seen != nil {
				t.Errorf("got %d %q (%v), want %d %q", response.Code, reported.Message, err, tc.wantCode, tc.wantMessage)
			}
		})
	}
}
