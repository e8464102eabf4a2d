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
	filters := newFilters(Options{Bounds: testBounds, MaxInFlight: 1})
	var inside http.HandlerFunc
	h := filters.withInFlightLimit(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) { inside(response, r) }))
	send := func(info *requestinfo.Info) int {
		ctx := requesttest.WithUser(withWork(t.Context(), info, workLimits{}), newClient("a").User)
		response := httptest.NewRecorder()
		h.ServeHTTP(response, httptest.NewRequest("GET", info.Path, nil).WithContext(ctx))
		return response.Code
	}
	get := func() int { return send(&requestinfo.Info{Verb: "get", Path: "/version"}) }
	inside = func(response http.ResponseWriter, r *http.Request) {
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

// TestStartedRequestReleasesSeats checks that a long-running or delegated request releases its seats
// once it has started.
func TestStartedRequestReleasesSeats(t *testing.T) {
	for name, tc := range map[string]struct {
		method string
		info   *requestinfo.Info
		query  string
	}{
		"watch with a short URL": {
			method: "GET",
			info: &requestinfo.Info{
				Verb:       "watch",
				Path:       "/api/v1/pods",
				Method:     "GET",
				IsResource: true,
				Target:     &apiset.Resource{Kind: &registry.Kind{}},
			},
			query: "watch=1",
		},
		"watch with a long URL": {
			method: "GET",
			info: &requestinfo.Info{
				Verb:       "watch",
				Path:       "/api/v1/pods",
				Method:     "GET",
				IsResource: true,
				Target:     &apiset.Resource{Kind: &registry.Kind{}},
			},
			query: "watch=1&labelSelector=" + url.QueryEscape("a in ("+strings.Repeat("xxxxxxxxxx,", 20000)+"y)"),
		},
		"exec": {method: "GET", info: execInfo, query: "command=x"},
		"patch of a delegated resource": {
			method: "PATCH",
			info:   &requestinfo.Info{Verb: "patch", Path: "/apis/x/v1/y/z", IsResource: true, Delegate: http.NotFoundHandler()},
		},
		"get of a delegated resource": {
			method: "GET",
			info:   &requestinfo.Info{Verb: "get", Path: "/apis/x/v1/y/z", IsResource: true, Delegate: http.NotFoundHandler()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			filters := newFilters(Options{Bounds: testBounds, Flow: newFlow(1, time.Second), Width: oneSeat})
			var inside http.HandlerFunc
			handler := filters.WithBody(filters.withFlowControl(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) { inside(response, r) })))
			get := func() int {
				ctx := requesttest.WithUser(withWork(t.Context(), &requestinfo.Info{Verb: "get", Path: "/version"}, workLimits{}),
					newClient("a").User)
				response := httptest.NewRecorder()
				handler.ServeHTTP(response, httptest.NewRequest("GET", "/version", nil).WithContext(ctx))
				return response.Code
			}
			inside = func(response http.ResponseWriter, r *http.Request) {
				inside = func(http.ResponseWriter, *http.Request) {}
				if code := get(); code != 429 {
					t.Errorf("before the request has started: got %d, want 429", code)
				}
				request.Started(r.Context())
				if code := get(); code != 200 {
					t.Errorf("after the request has started: got %d, want 200", code)
				}
			}
			ctx := requesttest.WithUser(withWork(t.Context(), tc.info, workLimits{}), newClient("a").User)
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(tc.method, tc.info.Path+"?"+tc.query, nil).WithContext(ctx))
		})
	}
}
