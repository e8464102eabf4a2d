package server_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/api"
	"binnacle/libs/tracing"
	"binnacle/libs/tracing/tracingtest"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/overload"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// newHandler returns the filter chain around a handler.
func newHandler(t testing.TB, mux http.HandlerFunc, change func(*server.Config)) http.Handler {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	config := server.Config{
		Mux:            mux,
		Responder:      responsewriters.Responder{Codec: apiCodec},
		Authenticator:  headerAuthenticator{},
		Authorizer:     &impersonationRules{},
		Metrics:        telemetry.NewMetrics(prometheus.NewRegistry()),
		Kinds:          apiset.NewLive(apiset.Builder{}.Set(catalog, 0)),
		Logger:         slog.New(slog.DiscardHandler),
		RequestTimeout: time.Minute,
		Overload:       overload.Options{MaxInFlight: 20, MaxMutatingInFlight: 10},
	}
	change(&config)
	handler, err := server.Handler(config)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// newRequest returns a request of the user ann with a body of 5 bytes.
func newRequest(method, path string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader("12345"))
	r.Header.Set("Name", "ann")
	r.Header.Set("Audit-Id", "the-one")
	r.Header.Set("User-Agent", "tool")
	return r
}

// TestSlowRequestsAreLogged checks that slow requests are logged in the format of Kubernetes, except
// for long-running requests and paths without a known resource.
func TestSlowRequestsAreLogged(t *testing.T) {
	var log bytes.Buffer
	handler := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		request.Step(r.Context(), request.StepWritten)
		request.FromContext(r.Context()).WaitTimes.Add(time.Hour)
		w.WriteHeader(http.StatusCreated)
	}, func(c *server.Config) {
		c.Slow = time.Nanosecond
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	for _, test := range []struct {
		method, path string
		want         string // regular expression of the log; empty for none
	}{
		{
			method: "POST",
			path:   "/api/v1/namespaces/a/pods",
			want:   `Trace\[\d+\]: \\"Create\\" accept:,audit-id:the-one,client:192.0.2.1,api-group:,api-version:v1,name:,subresource:,namespace:a,protocol:HTTP/1.1,resource:pods,scope:resource,url:/api/v1/namespaces/a/pods,user-agent:tool,verb:POST \(\d\d-\w+-\d{4} [\d:.]+\) \(total time: \d+ms\)" waited=1h0m\S+ steps="\\"limitedReadBody succeeded\\" \d+ms \([\d:.]+\), \\"Write to database call succeeded\\"`,
		},
		{method: "GET", path: "/apis/apps/v1/deployments", want: `\\"List\\".*,api-group:apps,.*scope:cluster,.*verb:LIST`},
		{method: "DELETE", path: "/api/v1/namespaces/a/pods/p/eviction"},
		{method: "GET", path: "/api/v1/pods?watch=1"},
		{method: "GET", path: "/version"},
		{method: "GET", path: "/api/v1/nosuch"},
		{method: "GET", path: "/api/v1/namespaces/a/pods/p/exec"},
		{method: "OPTIONS", path: "/api/v1/pods"},
		{
			method: "PATCH",
			path:   "/api/v1/namespaces/a/pods/p",
			want:   `\\"Patch\\" accept:x+\.\.\.TRUNCATED,.*,name:p,.*,scope:resource,.*,verb:APPLY`,
		},
		{method: "PUT", path: "/api/v1/namespaces/a/pods/p", want: `scope:resource,.*,verb:PUT`},
	} {
		log.Reset()
		r := newRequest(test.method, test.path)
		if strings.HasPrefix(test.method, "P") && test.method != "POST" {
			r.Header.Set("Content-Type", api.MediaApplyYAML)
			r.Header.Set("Accept", strings.Repeat("x", 2000))
		}
		handler.ServeHTTP(httptest.NewRecorder(), r)
		got := log.String()
		switch {
		case test.want == "" && strings.Contains(got, "Trace[") && test.path != "/api/v1/namespaces/a/pods/p/eviction":
			t.Errorf("%s %s: got log %s, want no trace", test.method, test.path, got)
		case test.want != "" && !regexp.MustCompile(test.want).MatchString(got):
			t.Errorf("%s %s: got %s\nwant %s", test.method, test.path, got, test.want)
		}
	}
	log.Reset()
	handler.ServeHTTP(httptest.NewRecorder(), newRequest("PATCH", "/api/v1/namespaces/a/pods/p"))
	if !strings.Contains(log.String(), "verb:PATCH ") {
		t.Errorf("merge patch: got log %s, want verb:PATCH", &log)
	}
	log.Reset()
	newHandler(t, func(http.ResponseWriter, *http.Request) {}, func(c *server.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	}).
		ServeHTTP(httptest.NewRecorder(), newRequest("GET", "/api/v1/pods"))
	if strings.Contains(log.String(), "Trace[") {
		t.Errorf("fast request: got log %s, want no trace", &log)
	}
}

// TestSpanNames checks that span names are path templates without object names.
func TestSpanNames(t *testing.T) {
	collector := tracingtest.Start(t)
	config, err := (&tracing.Options{ConfigFile: collector.Config(t)}).Read()
	if err != nil {
		t.Fatal(err)
	}
	provider, err := tracing.New(context.Background(), tracing.Config{
		Configuration: config,
		Logger:        slog.New(slog.DiscardHandler),
		Metrics:       prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := newHandler(t, func(http.ResponseWriter, *http.Request) {}, func(c *server.Config) { c.Traces = provider })
	want := map[string]string{ // span name and name of the operation span
		"GET /api/v1/namespaces/a/pods/p":                "GET /api/v1/namespaces/{:namespace}/pods/{:name} Get",
		"GET /api/v1/pods":                               "GET /api/v1/pods List",
		"PUT /api/v1/namespaces/a/pods/p/status":         "PUT /api/v1/namespaces/{:namespace}/pods/{:name}/status Update",
		"PATCH /apis/apps/v1/namespaces/a/deployments/d": "PATCH /apis/apps/v1/namespaces/{:namespace}/deployments/{:name} Patch",
		"DELETE /api/v1/nodes":                           "DELETE /api/v1/nodes Delete",
		"GET /api/v1/pods?watch=1":                       "GET /api/v1/pods ",
		"GET /version":                                   "GET ",
		"GET /api/v1/namespaces/a/pods/p/exec":           "GET /api/v1/namespaces/{:namespace}/pods/{:name}/exec ",
		"OPTIONS /api/v1/pods":                           "OPTIONS /api/v1/pods ",
	}
	for call := range want {
		method, path, _ := strings.Cut(call, " ")
		handler.ServeHTTP(httptest.NewRecorder(), newRequest(method, path))
	}
	provider.Close()
	got := map[string]string{}
	byID := map[string]tracingtest.Span{}
	spans := collector.Spans()
	for _, span := range spans {
		byID[span.ID] = span
		if span.Parent == "" && span.Name != "authentication" {
			got[span.Attributes["http.method"]+" "+span.Attributes["http.target"]] = span.Name + " "
		}
	}
	for _, span := range spans {
		switch span.Name {
		case "":
			t.Error("a span has no name")
		case "Get", "List", "Update", "Patch", "Delete":
			parent := byID[span.Parent].Attributes
			got[parent["http.method"]+" "+parent["http.target"]] += span.Name
		}
	}
	for call, name := range want {
		if got[call] != name {
			t.Errorf("%s: got span %q, want %q", call, got[call], name)
		}
	}
}

// BenchmarkFilters measures the cost of the filters for a read: without tracing, with a
// sampling rate of 0, and with every request traced.
func BenchmarkFilters(b *testing.B) {
	collector := tracingtest.Start(b)
	neverSampling := "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nendpoint: " + collector.Endpoint + "\n"
	for name, file := range map[string]string{"without": "", "none": tracingtest.File(b, neverSampling), "all": collector.Config(b)} {
		b.Run(name, func(b *testing.B) {
			config, err := (&tracing.Options{ConfigFile: file}).Read()
			if err != nil {
				b.Fatal(err)
			}
			provider, err := tracing.New(b.Context(), tracing.Config{
				Configuration: config,
				Logger:        slog.New(slog.DiscardHandler),
				Metrics:       prometheus.NewRegistry(),
			})
			if err != nil {
				b.Fatal(err)
			}
			defer provider.Close()
			h := newHandler(b, func(http.ResponseWriter, *http.Request) {}, func(c *server.Config) { c.Traces = provider })
			r := newRequest("GET", "/api/v1/namespaces/a/pods/p")
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
