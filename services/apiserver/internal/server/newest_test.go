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
)

// door is a server that does not know yet what the newest kinds are.
type door struct {
	http.Handler
	looks atomic.Int32
	// asked and done are the operations that were last authorized and executed.
	asked, done *requestinfo.Info
	// during is called while a request is worked on.
	during func(*http.Request)
}

func (d *door) Authenticate(r *http.Request) (*request.User, error) {
	if r.Header.Get("Name") == "" {
		return nil, nil
	}
	return named{}.Authenticate(r)
}

// asking remembers the operation of the request that an authority is asked about.
type asking struct{ d *door }

func (a asking) Authorize(ctx context.Context, of *authz.Attributes) (authz.Decision, string, error) {
	a.d.asked = requestinfo.From(ctx)
	if of.User.Name == "mallory" {
		return authz.Deny, "", nil
	}
	return authz.Allow, "", nil
}

func newDoor(t *testing.T, inFlight int) *door {
	t.Helper()
	catalog, err := builtin.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	defined, err := registry.NewCatalog([]registry.Group{{Name: "example.com", Versions: []string{"v1"}}}, []*registry.Kind{
		{Names: registry.Names{Group: "example.com", Version: "v1", Resource: "things", Kind: "Thing", Namespaced: true}, Virtual: true, Document: &registry.Document{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &door{}
	d.Handler, err = server.Handler(server.Config{
		Mux: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d.done = requestinfo.From(r.Context())
			if d.during != nil {
				d.during(r)
			}
			if d.done.Target == nil {
				w.WriteHeader(404)
			}
		}),
		Responder: responsewriters.Responder{Codec: c}, Authenticator: d, Authorizer: asking{d: d},
		Metrics: server.NewMetrics(prometheus.NewRegistry()), Kinds: apiset.NewLive(apiset.Builder{}.Set(catalog, 0)),
		Newest: func(context.Context) *apiset.Set {
			d.looks.Add(1)
			return apiset.Builder{}.Set(defined, 2)
		},
		Logger: slog.New(slog.DiscardHandler), RequestTimeout: time.Minute, MaxInFlight: inFlight,
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *door) send(name, path string) int {
	r := httptest.NewRequest("GET", path, nil)
	if name != "" {
		r.Header.Set("Name", name)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Code
}

const thingsPath = "/apis/example.com/v1/namespaces/a/things"

// TestUnknownResources are looked for on behalf of those who may use them.
func TestUnknownResources(t *testing.T) {
	for _, test := range []struct {
		user, path  string
		code, looks int
	}{
		{"", thingsPath, 401, 0},
		{"", "/apis/example.com", 401, 0},
		{"mallory", thingsPath, 403, 0},
		{"mallory", thingsPath + "?watch=1", 403, 0},
		{"mallory", "/apis/example.com", 403, 0},
		{"alice", thingsPath, 200, 1},
		{"alice", thingsPath + "?watch=1", 200, 1},
		{"alice", "/apis/example.com", 404, 1},
		{"alice", "/apis/example.com/v1/others", 404, 1},
		{"alice", "/api/v1/namespaces/a/pods", 200, 0},
		{"alice", "/api/v1/namespaces/a/unknown", 404, 0},
	} {
		d := newDoor(t, 0)
		code := d.send(test.user, test.path)
		if code != test.code || int(d.looks.Load()) != test.looks {
			t.Errorf("%q gets %s: %d after looking %d times", test.user, test.path, code, d.looks.Load())
		}
		if refused := code == 401 || code == 403; refused && d.done != nil || !refused && d.asked != d.done {
			t.Errorf("%q, %s: what is done is not what was authorized", test.user, test.path)
		}
	}
}

// TestUnknownResourcesAreLimited: to look is work like other work, and what was found
// counts as what it is.
func TestUnknownResourcesAreLimited(t *testing.T) {
	for _, test := range []struct {
		name, path string
		// meanwhile is what somebody else gets while the request is worked on.
		meanwhile, looks int
	}{
		{"a list holds its place", thingsPath, 429, 1},
		{"a list of what is known too", "/api/v1/namespaces/a/pods", 429, 0},
		{"a watch does not", thingsPath + "?watch=1", 200, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDoor(t, 1)
			var meanwhile int
			d.during = func(r *http.Request) {
				d.during = nil
				if _, bounded := r.Context().Deadline(); !bounded {
					t.Error("what came as a short request has no deadline")
				}
				meanwhile = d.send("bob", thingsPath)
			}
			if code := d.send("alice", test.path); code != 200 {
				t.Errorf("alice gets %d", code)
			}
			if meanwhile != test.meanwhile || int(d.looks.Load()) != test.looks {
				t.Errorf("bob gets %d after looking %d times", meanwhile, d.looks.Load())
			}
		})
	}
}

// TestReturnedOperations are resolved anew and authorized as what they are then, and not
// for ever.
func TestReturnedOperations(t *testing.T) {
	for _, test := range []struct {
		path                  string
		returns, done, looked int
	}{
		{thingsPath, 0, 1, 1},
		{thingsPath, 2, 3, 3},
		{thingsPath, 9, 4, 4},
		{"/api/v1/namespaces/a/pods", 9, 1, 0},
	} {
		d := newDoor(t, 0)
		done := 0
		d.during = func(*http.Request) {
			if done++; d.asked != d.done {
				t.Errorf("%s: what is done is not what was authorized", test.path)
			}
			if done <= test.returns {
				d.done.Return()
			}
		}
		if code := d.send("alice", test.path); code != 200 || done != test.done || int(d.looks.Load()) != test.looked {
			t.Errorf("%s, returned %d times: %d, done %d times after looking %d times", test.path, test.returns, code, done, d.looks.Load())
		}
	}
}
