package overload

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// execInfo is the request info of a pod exec.
var execInfo = &requestinfo.Info{
	Verb:       "get",
	Path:       "/api/v1/namespaces/n/pods/p/exec",
	Method:     "GET",
	IsResource: true,
	Target:     &apiset.Resource{Kind: &registry.Kind{}},
	Sub:        &registry.Subresource{Name: "exec", Connect: true},
}

// TestProxiedConnectionReleasesInFlightSlot checks that a proxied connection does not count against
// MaxInFlight.
func TestProxiedConnectionReleasesInFlightSlot(t *testing.T) {
	c := newFilters(Options{Bounds: testBounds, MaxInFlight: 1})
	var inside http.HandlerFunc
	h := c.withInFlightLimit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inside(w, r) }))
	send := func(op *requestinfo.Info) int {
		ctx := requesttest.WithUser(withWork(t.Context(), op, workLimits{}), newClient("a").User)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", op.Path, nil).WithContext(ctx))
		return w.Code
	}
	get := func() int { return send(&requestinfo.Info{Verb: "get", Path: "/version"}) }
	inside = func(w http.ResponseWriter, r *http.Request) {
		inside = func(http.ResponseWriter, *http.Request) {}
		if code := get(); code != 429 {
			t.Errorf("before the connection is proxied: got %d, want 429", code)
		}
		request.Started(r.Context())
		for range 2 {
			if code := get(); code != 200 {
				t.Errorf("after the connection is proxied: got %d, want 200", code)
			}
		}
	}
	send(execInfo)
	if code := get(); code != 200 {
		t.Errorf("after the end: got %d, want 200", code)
	}
}

// TestBegunRequestReleasesSeats checks that a request releases its seats when it has begun, also if
// a filter outside registered a function for that event.
func TestBegunRequestReleasesSeats(t *testing.T) {
	for name, tc := range map[string]struct {
		method string
		op     *requestinfo.Info
		query  string
	}{
		"watch, short target": {
			method: "GET",
			op: &requestinfo.Info{
				Verb:       "watch",
				Path:       "/api/v1/pods",
				Method:     "GET",
				IsResource: true,
				Target:     &apiset.Resource{Kind: &registry.Kind{}},
			},
			query: "watch=1",
		},
		"watch, long target": {
			method: "GET",
			op: &requestinfo.Info{
				Verb:       "watch",
				Path:       "/api/v1/pods",
				Method:     "GET",
				IsResource: true,
				Target:     &apiset.Resource{Kind: &registry.Kind{}},
			},
			query: "watch=1&labelSelector=" + url.QueryEscape("a in ("+strings.Repeat("xxxxxxxxxx,", 20000)+"y)"),
		},
		"exec": {method: "GET", op: execInfo, query: "command=x"},
		"patch of an aggregated API": {
			method: "PATCH",
			op:     &requestinfo.Info{Verb: "patch", Path: "/apis/x/v1/y/z", IsResource: true, Delegate: http.NotFoundHandler()},
		},
		"get of an aggregated API": {
			method: "GET",
			op:     &requestinfo.Info{Verb: "get", Path: "/apis/x/v1/y/z", IsResource: true, Delegate: http.NotFoundHandler()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFilters(Options{Bounds: testBounds, Flow: newFlow(1, time.Second), Width: oneSeat})
			var inside http.HandlerFunc
			handler := c.WithBody(c.withFlowControl(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inside(w, r) })))
			get := func() int {
				ctx := requesttest.WithUser(withWork(t.Context(), &requestinfo.Info{Verb: "get", Path: "/version"}, workLimits{}),
					newClient("a").User)
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest("GET", "/version", nil).WithContext(ctx))
				return w.Code
			}
			inside = func(w http.ResponseWriter, r *http.Request) {
				inside = func(http.ResponseWriter, *http.Request) {}
				if code := get(); code != 429 {
					t.Errorf("before the request has begun: got %d, want 429", code)
				}
				request.Started(r.Context())
				if code := get(); code != 200 {
					t.Errorf("after the request has begun: got %d, want 200", code)
				}
			}
			ctx := requesttest.WithUser(withWork(t.Context(), tc.op, workLimits{}), newClient("a").User)
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(tc.method, tc.op.Path+"?"+tc.query, nil).WithContext(ctx))
		})
	}
}
