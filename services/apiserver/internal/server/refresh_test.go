package server_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/overload"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// refreshFixture is a server whose API set is older than the one that Refresh returns.
type refreshFixture struct {
	http.Handler
	refreshes atomic.Int32
	// authorized and executed are the last request infos that the authorizer and the handler saw.
	authorized, executed *requestinfo.Info
	// during is called by the handler.
	during func(*http.Request)
}

func (fixture *refreshFixture) Authenticate(r *http.Request) (*request.User, error) {
	if r.Header.Get("Name") == "" {
		return nil, nil
	}
	return headerAuthenticator{}.Authenticate(r)
}

// recordingAuthorizer records the request info of the authorized request and denies mallory.
type recordingAuthorizer struct{ fixture *refreshFixture }

func (a recordingAuthorizer) Authorize(ctx context.Context, attrs *authz.Attributes) (authz.Decision, string, error) {
	a.fixture.authorized = requestinfo.FromContext(ctx)
	if attrs.User.Name == "mallory" {
		return authz.Deny, "", nil
	}
	return authz.Allow, "", nil
}

// newRefreshFixture returns a server with an in-flight limit, whose API set the test replaces.
func newRefreshFixture(t *testing.T, inFlight int) *refreshFixture {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	defined, err := registry.NewCatalog([]registry.Group{{Name: "example.com", Versions: []string{"v1"}}}, []*registry.Kind{
		{
			Names:    registry.Names{Group: "example.com", Version: "v1", Resource: "things", Kind: "Thing", Namespaced: true},
			Virtual:  true,
			Document: &registry.Document{},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	fixture := &refreshFixture{}
	fixture.Handler, err = server.Handler(server.Config{
		Mux: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fixture.executed = requestinfo.FromContext(r.Context())
			if fixture.during != nil {
				fixture.during(r)
			}
			if fixture.executed.Target == nil {
				w.WriteHeader(404)
			}
		}),
		Responder:     responsewriters.Responder{Codec: apiCodec},
		Authenticator: fixture,
		Authorizer:    recordingAuthorizer{fixture: fixture},
		Metrics:       telemetry.NewMetrics(prometheus.NewRegistry()),
		Kinds:         apiset.NewLive(apiset.Builder{}.Set(catalog, 0)),
		Refresh: func(context.Context) *apiset.Set {
			fixture.refreshes.Add(1)
			return apiset.Builder{}.Set(defined, 2)
		},
		Logger:         slog.New(slog.DiscardHandler),
		RequestTimeout: time.Minute,
		Overload:       overload.Options{MaxInFlight: inFlight},
	})
	if err != nil {
		t.Fatal(err)
	}
	return fixture
}

// send sends a GET and returns the status code. Without a name, the request is not authenticated.
func (fixture *refreshFixture) send(name, path string) int {
	r := httptest.NewRequest("GET", path, nil)
	if name != "" {
		r.Header.Set("Name", name)
	}
	response := httptest.NewRecorder()
	fixture.ServeHTTP(response, r)
	return response.Code
}

const customPath = "/apis/example.com/v1/namespaces/a/things"

// TestUnknownResourceIsRefreshedForAuthorizedUsers checks that only an authorized request for an
// unknown resource reads the newest API set, and that the authorized operation is the executed one.
func TestUnknownResourceIsRefreshedForAuthorizedUsers(t *testing.T) {
	for _, test := range []struct {
		user, path              string
		wantCode, wantRefreshes int
	}{
		{path: customPath, wantCode: 401},
		{path: "/apis/example.com", wantCode: 401},
		{user: "mallory", path: customPath, wantCode: 403},
		{user: "mallory", path: customPath + "?watch=1", wantCode: 403},
		{user: "mallory", path: "/apis/example.com", wantCode: 403},
		{user: "alice", path: customPath, wantCode: 200, wantRefreshes: 1},
		{user: "alice", path: customPath + "?watch=1", wantCode: 200, wantRefreshes: 1},
		{user: "alice", path: "/apis/example.com", wantCode: 404, wantRefreshes: 1},
		{user: "alice", path: "/apis/example.com/v1/others", wantCode: 404, wantRefreshes: 1},
		{user: "alice", path: "/api/v1/namespaces/a/pods", wantCode: 200},
		{user: "alice", path: "/api/v1/namespaces/a/unknown", wantCode: 404},
	} {
		fixture := newRefreshFixture(t, 0)
		code := fixture.send(test.user, test.path)
		if code != test.wantCode || int(fixture.refreshes.Load()) != test.wantRefreshes {
			t.Errorf("user %q, %s: got code %d and %d refreshes, want %d and %d", test.user, test.path, code,
				fixture.refreshes.Load(), test.wantCode, test.wantRefreshes)
		}
		if rejected := code == 401 || code == 403; rejected && fixture.executed != nil || !rejected && fixture.authorized != fixture.executed {
			t.Errorf("%q, %s: got %v executed, want what was authorized, %v", test.user, test.path, fixture.executed, fixture.authorized)
		}
	}
}

// TestUnknownResourceCountsAgainstLimits checks that a refresh counts against the in-flight limit.
// The found resource counts by its own verb.
func TestUnknownResourceCountsAgainstLimits(t *testing.T) {
	for _, test := range []struct {
		name, path string
		// wantMeanwhile is the code that another user gets while the request runs.
		wantMeanwhile, wantRefreshes int
	}{
		{name: "list of unknown resource", path: customPath, wantMeanwhile: 429, wantRefreshes: 1},
		{name: "list of known resource", path: "/api/v1/namespaces/a/pods", wantMeanwhile: 429},
		{name: "watch of unknown resource", path: customPath + "?watch=1", wantMeanwhile: 200, wantRefreshes: 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			fixture := newRefreshFixture(t, 1)
			var meanwhile int
			fixture.during = func(r *http.Request) {
				fixture.during = nil
				if _, bounded := r.Context().Deadline(); !bounded {
					t.Error("the request has no deadline")
				}
				meanwhile = fixture.send("bob", customPath)
			}
			if code := fixture.send("alice", test.path); code != 200 {
				t.Errorf("alice: got code %d, want 200", code)
			}
			if meanwhile != test.wantMeanwhile || int(fixture.refreshes.Load()) != test.wantRefreshes {
				t.Errorf("bob: got code %d and %d refreshes, want %d and %d", meanwhile, fixture.refreshes.Load(), test.wantMeanwhile, test.wantRefreshes)
			}
		})
	}
}

// TestReturnedRequestIsAuthorizedAgain checks that a returned request is resolved and authorized
// again, at most maxRetries times.
func TestReturnedRequestIsAuthorizedAgain(t *testing.T) {
	for _, test := range []struct {
		path                          string
		returns                       int // how often the handler returns the request
		wantExecutions, wantRefreshes int
	}{
		{path: customPath, wantExecutions: 1, wantRefreshes: 1},
		{path: customPath, returns: 2, wantExecutions: 3, wantRefreshes: 3},
		{path: customPath, returns: 9, wantExecutions: 4, wantRefreshes: 4},
		{path: "/api/v1/namespaces/a/pods", returns: 9, wantExecutions: 1},
	} {
		fixture := newRefreshFixture(t, 0)
		executions := 0
		fixture.during = func(*http.Request) {
			executions++
			if fixture.authorized != fixture.executed {
				t.Errorf("%s: got %v executed, want what was authorized, %v", test.path, fixture.executed, fixture.authorized)
			}
			if executions <= test.returns {
				fixture.executed.Retry()
			}
		}
		code := fixture.send("alice", test.path)
		refreshes := int(fixture.refreshes.Load())
		if code != 200 || executions != test.wantExecutions || refreshes != test.wantRefreshes {
			t.Errorf("%s, returned %d times: got code %d, %d executions and %d refreshes, want 200, %d and %d",
				test.path, test.returns, code, executions, refreshes, test.wantExecutions, test.wantRefreshes)
		}
	}
}
