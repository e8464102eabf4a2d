package kubeletproxy_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/tracing"
	"binnacle/libs/tracing/tracingtest"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
)

// TestTraceHeadersReachKubelet checks that the kubelet receives a trace header of this server in
// place of the client's, for each kind of request.
func TestTraceHeadersReachKubelet(t *testing.T) {
	collector := tracingtest.Start(t)
	config, err := (&tracing.Options{ConfigFile: tracingtest.File(t,
		"apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nsamplingRatePerMillion: 1000000\nendpoint: "+
			collector.Endpoint+"\n")}).Read()
	if err != nil {
		t.Fatal(err)
	}
	traces, err := tracing.New(t.Context(), tracing.Config{
		Configuration: config,
		Service:       "testd",
		Instance:      "one",
		Logger:        slog.New(slog.DiscardHandler),
		Metrics:       prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]string{} // by path
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Path] = r.Header.Get("Traceparent")
		http.Error(w, "not now", http.StatusForbidden) // upgrades too
	}))
	defer kubelet.Close()
	upstream, err := kubeletproxy.New(optionsTrusting(t, kubelet), prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	upstream.Traced(traces)
	const client = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traced := traces.Handler(tracing.Incoming{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, err := url.Parse(kubelet.URL + r.URL.Path)
		if err != nil {
			t.Error(err)
		}
		switch r.URL.Path {
		case "/log":
			if _, err := upstream.Log(r.Context(), kubeletproxy.Kubelet, at, "p"); err == nil {
				t.Error("got no error, want one")
			}
		case "/proxy":
			upstream.Proxy(w, r, kubeletproxy.Kubelet, at, plainErrors{})
		case "/exec":
			upstream.Command(w, r, at, kubeletproxy.Streams{Stdout: true}, true, plainErrors{})
		case "/forward":
			upstream.PortForward(w, r, at, true, plainErrors{})
		}
	}))
	var handled sync.WaitGroup // a span ends after the response
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handled.Add(1)
		defer handled.Done()
		traced.ServeHTTP(w, r)
	}))
	defer front.Close()
	for _, path := range []string{"/log", "/proxy", "/exec", "/forward"} {
		r, err := http.NewRequest(http.MethodPost, front.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Traceparent", client)
		if path == "/exec" || path == "/forward" {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "SPDY/3.1")
		}
		resp, err := front.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	handled.Wait()
	traces.Close()
	roots := map[string]string{} // by the trace
	for _, s := range collector.Spans() {
		if s.Parent == "" {
			roots[s.Trace] = s.Attributes["http.target"]
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, path := range []string{"/log", "/proxy", "/exec", "/forward"} {
		parts := strings.Split(seen[path], "-")
		if len(parts) != 4 || roots[parts[1]] != path || parts[3] != "01" {
			t.Errorf("%s: got traceparent %q, want a sampled one of the request's trace", path, seen[path])
		}
	}
}
