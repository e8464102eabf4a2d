package server_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// metricValues returns the values of a metric above 0. A key holds the values of the given labels,
// joined by spaces. The value of a histogram is its number of observations.
func metricValues(t *testing.T, gatherer *prometheus.Registry, name string, labels ...string) map[string]float64 {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.Metric {
			var key []string
			for _, want := range labels {
				for _, label := range metric.Label {
					if label.GetName() == want {
						key = append(key, label.GetValue())
					}
				}
			}
			value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			if value > 0 {
				values[strings.Join(key, " ")] += value
			}
		}
	}
	return values
}

// TestMetricLabelsDescribeRequests checks that labels describe the request, and that clients cannot
// create arbitrary series. A key of the expected values holds the values of the listed labels, joined by
// spaces.
func TestMetricLabelsDescribeRequests(t *testing.T) {
	registry := prometheus.NewRegistry()
	responseCode := http.StatusOK
	handler := newHandler(t, func(response http.ResponseWriter, _ *http.Request) {
		if responseCode != 0 {
			response.WriteHeader(responseCode)
			_, _ = io.WriteString(response, "x")
		}
	}, func(c *server.Config) {
		c.Metrics = telemetry.NewMetrics(registry)
		c.Delegates.Extension = func(gv schema.GroupVersion) http.Handler {
			if gv.Group == "delegated.test" {
				return http.NotFoundHandler()
			}
			return nil
		}
	})
	send := func(ctx context.Context, method, path, media string) *httptest.ResponseRecorder {
		r := newRequest(method, path).WithContext(ctx)
		if method == "GET" {
			r.Body = http.NoBody
			r.ContentLength = 0
		}
		r.Header.Set("Content-Type", media)
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, r)
		return response
	}
	const pods = "/api/v1/namespaces/a/pods"
	for _, request := range []struct{ method, path, media string }{
		{method: "GET", path: pods},
		{method: "GET", path: "/api/v1/pods"},
		{method: "GET", path: pods + "/p"},
		{method: "GET", path: pods + "/p/exec"},
		{method: "GET", path: pods + "?watch=1"},
		{method: "POST", path: pods + "?fieldValidation=Strict"},
		{method: "POST", path: pods + "?dryRun=All"},
		{method: "POST", path: pods + "?dryRun=x"},
		{method: "POST", path: "/api/v1/namespaces/a/others"},
		{method: "PATCH", path: pods + "/p", media: api.MediaApplyYAML},
		{method: "PATCH", path: pods + "/p", media: api.MediaApplyCBOR + "; x=y"},
		{method: "PATCH", path: pods + "/p", media: "application/merge-patch+json"},
		{method: "PUT", path: pods + "/p", media: api.MediaApplyYAML},
		{method: "GET", path: "/healthz"},
		{method: "HEAD", path: "/apis"},
		{method: "GET", path: "/openapi/v3"},
		{method: "GET", path: "/openapi/v3/api/v1"},
		{method: "GET", path: "/x"},
		{method: "POST", path: "/x"},
		{method: "GET", path: "/api/v1/others"},
		{method: "POST", path: "/apis/delegated.test/v1/things"},
	} {
		send(t.Context(), request.method, request.path, request.media)
	}
	canceledCtx, cancel := context.WithCancel(t.Context())
	cancel()
	responseCode = http.StatusNotFound
	send(canceledCtx, "GET", pods, "")
	responseCode = 0
	send(t.Context(), "GET", pods, "")
	for name, test := range map[string]struct {
		labels []string
		want   map[string]float64
	}{
		"apiserver_request_total": {
			labels: []string{"code", "dry_run", "resource", "scope", "subresource", "verb"},
			want: map[string]float64{
				"200  pods namespace  LIST":       2,
				"404  pods namespace  LIST":       1,
				"200  pods cluster  LIST":         1,
				"200  pods resource  GET":         1,
				"200  pods resource exec CONNECT": 1,
				"200  pods namespace  WATCH":      1,
				"200  pods resource  POST":        2,
				"200 All pods resource  POST":     1,
				"200  pods resource  APPLY":       2,
				"200  pods resource  PATCH":       1,
				"200  pods resource  PUT":         1,
				"200    /healthz GET":             1,
				"200    /apis GET":                1,
				"200    openapi/v3 GET":           1,
				"200    openapi/v3/ GET":          1,
				"200     GET":                     1,
				"200     POST":                    2,
				"200     other":                   1,
				"200     LIST":                    1,
			},
		},
		"apiserver_request_sli_duration_seconds": {
			labels: []string{"component", "subresource", "verb"},
			want: map[string]float64{
				" /healthz GET":          1, // some handlers of kube-apiserver name no component
				" openapi/v3 GET":        1,
				" openapi/v3/ GET":       1,
				"apiserver /apis GET":    1,
				"apiserver exec CONNECT": 1,
				"apiserver  APPLY":       2,
				"apiserver  GET":         2,
				"apiserver  LIST":        5,
				"apiserver  PATCH":       1,
				"apiserver  POST":        5,
				"apiserver  PUT":         1,
				"apiserver  other":       1,
			},
		},
		"apiserver_response_sizes": {labels: []string{"verb"}, want: map[string]float64{"LIST": 5, "GET": 6}},
		"field_validation_request_duration_seconds": {
			labels: []string{"field_validation"},
			want:   map[string]float64{"": 6, "Strict": 1},
		},
		"apiserver_request_body_size_bytes": {
			labels: []string{"resource", "verb"},
			want:   map[string]float64{"pods create": 3, "pods patch": 3, "pods update": 1},
		},
		"apiserver_longrunning_requests":      {labels: []string{"verb"}, want: map[string]float64{}},
		"apiserver_current_inflight_requests": {labels: []string{"request_kind"}, want: map[string]float64{}},
	} {
		if got := metricValues(t, registry, name, test.labels...); !maps.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// TestReadsAndWritesCountSeparately checks that reads and writes have separate in-flight gauges and
// limits.
func TestReadsAndWritesCountSeparately(t *testing.T) {
	const pods = "/api/v1/namespaces/a/pods"
	for _, test := range []struct {
		method, path string
		// The expected gauges while the request runs: requests in flight and long-running requests.
		inflight, long map[string]float64
		// The expected status codes of another read and another write at that time.
		read, write int
	}{
		{
			method:   "GET",
			path:     pods,
			inflight: map[string]float64{"readOnly": 1},
			long:     map[string]float64{},
			read:     429,
			write:    200,
		},
		{
			method:   "POST",
			path:     pods,
			inflight: map[string]float64{"mutating": 1},
			long:     map[string]float64{},
			read:     200,
			write:    429,
		},
		{
			method:   "GET",
			path:     pods + "?watch=1",
			inflight: map[string]float64{},
			long:     map[string]float64{"WATCH": 1},
			read:     200,
			write:    200,
		},
		{
			method:   "GET",
			path:     pods + "/p/log",
			inflight: map[string]float64{},
			long:     map[string]float64{"CONNECT": 1},
			read:     429,
			write:    200,
		},
		{method: "GET", path: "/readyz", inflight: map[string]float64{}, long: map[string]float64{}, read: 200, write: 200},
	} {
		registry := prometheus.NewRegistry()
		var inside func()
		h := newHandler(t, func(http.ResponseWriter, *http.Request) { inside() }, func(config *server.Config) {
			config.Metrics = telemetry.NewMetrics(registry)
			config.Overload.MaxInFlight = 1
			config.Overload.MaxMutatingInFlight = 1
		})
		send := func(method, path string) int {
			response := httptest.NewRecorder()
			h.ServeHTTP(response, newRequest(method, path))
			return response.Code
		}
		inside = func() {
			inside = func() {}
			inflight := metricValues(t, registry, "apiserver_current_inflight_requests", "request_kind")
			long := metricValues(t, registry, "apiserver_longrunning_requests", "verb")
			if !maps.Equal(inflight, test.inflight) || !maps.Equal(long, test.long) {
				t.Errorf("%s %s: got in-flight %v and long-running %v, want %v and %v", test.method, test.path,
					inflight, long, test.inflight, test.long)
			}
			if code := send("GET", "/api/v1/others?watch=1"); code != test.read { // a watch of an unknown resource
				t.Errorf("during %s %s: got %d for an unknown resource, want %d", test.method, test.path, code, test.read)
			}
			if read, write := send("GET", pods), send("POST", pods); read != test.read || write != test.write {
				t.Errorf("during %s %s: got %d for a read and %d for a write, want %d and %d", test.method,
					test.path, read, write, test.read, test.write)
			}
		}
		if code := send(test.method, test.path); code != http.StatusOK {
			t.Errorf("%s %s: got %d, want 200", test.method, test.path, code)
		}
	}
}

// TestFlushPassesFilters checks that a flush passes all filters, and the access log is written at
// debug level only.
func TestFlushPassesFilters(t *testing.T) {
	var log bytes.Buffer
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
		log.Reset()
		h := newHandler(t, func(response http.ResponseWriter, _ *http.Request) { response.(http.Flusher).Flush() }, func(c *server.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))
		})
		response := httptest.NewRecorder()
		h.ServeHTTP(response, newRequest("GET", "/api/v1/pods"))
		if !response.Flushed {
			t.Error("the response was not flushed")
		}
		if logged := strings.Contains(log.String(), "audit-ID=the-one"); logged != (level == slog.LevelDebug) {
			t.Errorf("level %v: got audit id logged = %t, want %t; log: %s", level, logged, level == slog.LevelDebug, &log)
		}
	}
}

// countingAuthorizer counts its calls and denies mallory.
type countingAuthorizer struct{ calls int }

func (c *countingAuthorizer) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	c.calls++
	if a.User.Name == "mallory" {
		return authz.Deny, "", nil
	}
	return authz.Allow, "", nil
}

// TestRefreshOnlyForPossibleDefinitions checks that known and delegated resources, and paths that no
// definition can serve, cause no refresh. A refreshed request is authorized twice, any other request
// once.
func TestRefreshOnlyForPossibleDefinitions(t *testing.T) {
	kinds := newAPISet(t)
	for _, test := range []struct {
		user, path                        string
		wantRefreshes, wantAuthorizations int
	}{
		{user: "ann", path: "/apis/none.test/v1/xs", wantRefreshes: 1, wantAuthorizations: 2},
		{user: "mallory", path: "/apis/none.test/v1/xs", wantAuthorizations: 1},
		{user: "ann", path: "/apis/delegated.test/v1/xs", wantAuthorizations: 1},
		{user: "ann", path: "/apis/example.com/v1/namespaces/a/things/x", wantAuthorizations: 1},
		{user: "ann", path: "/apis/example.com/v1/namespaces/a/things/x/unknown", wantAuthorizations: 1},
		{user: "ann", path: "/apis/example.com/v1/namespaces/a/others", wantRefreshes: 1, wantAuthorizations: 2},
		{user: "ann", path: "/apis/none.test", wantRefreshes: 1, wantAuthorizations: 2},
		{user: "ann", path: "/apis/none.test/v1", wantRefreshes: 1, wantAuthorizations: 2},
		{user: "ann", path: "/apis/example.com", wantAuthorizations: 1},
		{user: "ann", path: "/apis/none", wantAuthorizations: 1},
		{user: "ann", path: "/apis", wantAuthorizations: 1},
		{user: "ann", path: "/logs/none.test", wantAuthorizations: 1},
		{user: "ann", path: "/logs/none.test/x/y/z", wantAuthorizations: 1},
		{user: "ann", path: "/", wantAuthorizations: 1},
	} {
		refreshes := 0
		counting := &countingAuthorizer{}
		handler := newHandler(t, func(http.ResponseWriter, *http.Request) {}, func(config *server.Config) {
			config.Kinds = apiset.NewLive(kinds)
			config.Authorizer = counting
			config.Refresh = func(context.Context) *apiset.Set { refreshes++; return kinds }
			config.Delegates.Extension = func(gv schema.GroupVersion) http.Handler {
				if gv.Group == "delegated.test" {
					return http.NotFoundHandler()
				}
				return nil
			}
		})
		r := newRequest("GET", test.path)
		r.Header.Set("Name", test.user)
		handler.ServeHTTP(httptest.NewRecorder(), r)
		if refreshes != test.wantRefreshes || counting.calls != test.wantAuthorizations {
			t.Errorf("%s, %s: got %d refreshes and %d authorizations, want %d and %d",
				test.user, test.path, refreshes, counting.calls, test.wantRefreshes, test.wantAuthorizations)
		}
	}
}

// TestFlushPassesAudit checks that a handler can flush an audited response.
func TestFlushPassesAudit(t *testing.T) {
	fixture := newAuditFixture(t, 1, nil, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		if requestinfo.FromContext(r.Context()) == nil {
			t.Error("the request has no request info")
		}
	})
	w, _ := fixture.serve(httptest.NewRequest("GET", listPath, nil))
	if !w.Flushed || !slices.Contains(fixture.stages(), "ResponseComplete 200 ada") {
		t.Errorf("GET %s: got flushed = %t, audit events %v, want true, with ResponseComplete 200 ada", listPath, w.Flushed, fixture.stages())
	}
}
