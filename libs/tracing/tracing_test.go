package tracing_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"binnacle/libs/tracing"
	"binnacle/libs/tracing/tracingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const configHeader = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\n"

// TestInvalidConfigurationsAreRejected checks the errors for invalid configuration files.
func TestInvalidConfigurationsAreRejected(t *testing.T) {
	for _, test := range []struct{ name, content, want string }{
		{name: "all fields", content: configHeader + "endpoint: localhost:4317\nsamplingRatePerMillion: 100\n"},
		{name: "no fields", content: configHeader},
		{name: "v1alpha1", content: strings.Replace(configHeader, "v1beta1", "v1alpha1", 1)},
		{name: "socket", content: configHeader + "endpoint: unix:///run/otel.sock\n"},
		{
			name:    "another version",
			content: strings.Replace(configHeader, "v1beta1", "v2", 1),
			want:    `no kind "TracingConfiguration" is registered for version "apiserver.config.k8s.io/v2"`,
		},
		{
			name:    "another kind",
			content: strings.Replace(configHeader, "Tracing", "Audit", 1),
			want:    `no kind "AuditConfiguration" is registered`,
		},
		{name: "no kind", content: "endpoint: a:1\n", want: "Object 'Kind' is missing"},
		{name: "an unknown field", content: configHeader + "rate: 1\n", want: `strict decoding error: unknown field "rate"`},
		{name: "a field twice", content: configHeader + "endpoint: a:1\nendpoint: b:1\n", want: `key "endpoint" already set in map`},
		{
			name:    "a wrong type",
			content: configHeader + "samplingRatePerMillion: many\n",
			want:    "unable to decode tracing configuration data",
		},
		{name: "not YAML", content: "{", want: "unable to decode tracing configuration data"},
		{
			name:    "a negative rate",
			content: configHeader + "samplingRatePerMillion: -1\n",
			want:    "samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
		},
		{
			name:    "rate over one million",
			content: configHeader + "samplingRatePerMillion: 1000001\n",
			want:    "sampling rate per million must be less than or equal to one million",
		},
		{
			name:    "another scheme",
			content: configHeader + "endpoint: http://localhost:4317\n",
			want:    `endpoint: Invalid value: "http://localhost:4317": unsupported scheme: http.`,
		},
		{name: "invalid address", content: configHeader + "endpoint: dn%2s://localhost:4317\n", want: "endpoint: Invalid value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := tracing.Options{ConfigFile: tracingtest.File(t, test.content)}
			got, err := options.Read()
			switch {
			case test.want == "" && (err != nil || got == nil):
				t.Errorf("Read() = %v, %v, want a configuration", got, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
	if _, err := (&tracing.Options{ConfigFile: "/none"}).Read(); err == nil || !strings.Contains(err.Error(),
		`unable to read tracing configuration from "/none"`) {
		t.Errorf("missing file: got error %v, want one that names /none", err)
	}
	if config, err := (&tracing.Options{}).Read(); config != nil || err != nil {
		t.Errorf("no file: got %v, %v, want no configuration", config, err)
	}
}

// provider returns a provider. A nil dial connects directly.
func provider(t *testing.T, content string, dial dialFunc) (*tracing.Provider, *prometheus.Registry) {
	t.Helper()
	config, err := (&tracing.Options{ConfigFile: tracingtest.File(t, content)}).Read()
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	p, err := tracing.New(t.Context(), tracing.Config{
		Configuration: config,
		Service:       "testd",
		Instance:      "one",
		Logger:        slog.New(slog.DiscardHandler),
		Metrics:       registry,
		Dial:          dial,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, registry
}

// dialFunc is the type of Config.Dial.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// TestUntrustedCallersDoNotDecideSampling checks that only the rate applies to untrusted callers,
// and the caller's trace to others.
func TestUntrustedCallersDoNotDecideSampling(t *testing.T) {
	fullRate, noRate := "samplingRatePerMillion: 1000000\n", ""
	for _, test := range []struct {
		name, rate, parent string
		untrusted          bool
		sampledSpans       int
		continued, linked  bool
	}{
		{name: "no parent, full rate", rate: fullRate, sampledSpans: 1},
		{name: "no parent, rate zero", rate: noRate},
		{name: "sampled parent, rate zero", rate: noRate, parent: sampled, sampledSpans: 1, continued: true},
		{name: "sampled parent, rate zero, untrusted", rate: noRate, parent: sampled, untrusted: true},
		{name: "sampled parent, full rate, untrusted", rate: fullRate, parent: sampled, untrusted: true, sampledSpans: 1, linked: true},
		{name: "unsampled parent, full rate", rate: fullRate, parent: unsampled},
		{name: "unsampled parent, full rate, untrusted", rate: fullRate, parent: unsampled, untrusted: true, sampledSpans: 1, linked: true},
		{name: "invalid parent, full rate", rate: fullRate, parent: "00-zz-zz-01", sampledSpans: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			collector := tracingtest.Start(t)
			tracer, _ := provider(t, configHeader+test.rate+"endpoint: "+collector.Endpoint+"\n", nil)
			var sent string
			next := http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
				out, _ := http.NewRequestWithContext(request.Context(), http.MethodGet, "http://elsewhere.example/x", nil)
				response, err := tracer.Transport(roundTripper(func(request *http.Request) (*http.Response, error) {
					sent = request.Header.Get("Traceparent")
					return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
				})).RoundTrip(out)
				if err != nil {
					t.Error(err)
					return
				}
				response.Body.Close()
				if out.Header.Get("Traceparent") != "" {
					t.Errorf("RoundTrip() set Traceparent %q in the caller's request, want it unchanged",
						out.Header.Get("Traceparent"))
				}
			})
			request := httptest.NewRequest(http.MethodGet, "/x", nil)
			if test.parent != "" {
				request.Header.Set("Traceparent", test.parent)
			}
			tracer.Handler(tracing.Incoming{Follow: func(*http.Request) bool { return !test.untrusted }},
				next).ServeHTTP(httptest.NewRecorder(), request)
			tracer.Close()
			spans := collector.Spans()
			if len(spans) != 2*test.sampledSpans {
				t.Fatalf("%d spans: %+v, want %v", len(spans), spans, 2*test.sampledSpans)
			}
			if flag := strings.HasSuffix(sent, "-01"); sent == "" || flag != (test.sampledSpans > 0) {
				t.Errorf("got propagated traceparent %q, want it sampled: %t", sent, test.sampledSpans > 0)
			}
			for _, span := range spans {
				const trace = "0af7651916cd43dd8448eb211c80319c"
				if (span.Trace == trace) != test.continued {
					t.Errorf("span %s: got trace %s, want that of the client, %s: %t", span.Name, span.Trace, trace, test.continued)
				}
				if span.Name == "GET" && (len(span.Links) == 1 && span.Links[0] == trace) != test.linked {
					t.Errorf("got links %v, want one to trace %s: %t", span.Links, trace, test.linked)
				}
				if span.Name == "HTTP GET" && !strings.Contains(sent, span.Trace+"-"+span.ID) {
					t.Errorf("propagated %s, want span %s", sent, span.ID)
				}
				if span.Service != "testd" || span.Instance != "one" {
					t.Errorf("got span of service %s, instance %s, want testd, one", span.Service, span.Instance)
				}
			}
		})
	}
}

// TestSpanTextsAreLimited checks that texts that callers choose are limited, because spans wait in
// memory.
func TestSpanTextsAreLimited(t *testing.T) {
	collector := tracingtest.Start(t)
	tracer, _ := provider(t, configHeader+"samplingRatePerMillion: 1000000\nendpoint: "+collector.Endpoint+"\n", nil)
	long := strings.Repeat("x", 1<<20)
	handler := tracer.Handler(tracing.Incoming{Name: func(r *http.Request) string { return r.URL.Path }},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest(http.MethodGet, "/"+long, nil)
	r.Header.Set("User-Agent", long)
	handler.ServeHTTP(httptest.NewRecorder(), r)
	tracer.Close()
	for _, span := range collector.Spans() {
		size := len(span.Name)
		for _, v := range span.Attributes {
			size += len(v)
		}
		if size > 16<<10 {
			t.Errorf("a span has %d bytes, want at most %v", size, 16<<10)
		}
	}
	if len(collector.Spans()) != 1 {
		t.Errorf("got %d spans, want 1", len(collector.Spans()))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestUnavailableCollectorDoesNotBlock checks that an unreachable or hanging collector does not
// block requests, and that lost spans are counted. Closing waits for the collector, hence the fake
// clock.
func TestUnavailableCollectorDoesNotBlock(t *testing.T) {
	for name, dial := range map[string]dialFunc{
		"hangs": func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			time.AfterFunc(time.Minute, func() { server.Close() })
			go func() { _, _ = io.Copy(io.Discard, server) }()
			return client, nil
		},
		"is gone": func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // the hanging connection closes
				tracer, metrics := provider(t, configHeader+"samplingRatePerMillion: 1000000\nendpoint: collector:4317\n", dial)
				handler := tracer.Handler(tracing.Incoming{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				const many = 10_000 // more than the queue holds
				for range many {
					handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/x", nil))
				}
				tracer.Close()
				families, err := metrics.Gather()
				if err != nil {
					t.Fatal(err)
				}
				counts := map[string]float64{}
				for _, m := range families[0].GetMetric() {
					counts[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
				}
				if counts["ended"] != many || counts["exported"] != 0 || counts["lost"] > many/2 {
					t.Errorf("got counts %v, want %v ended, none exported and at most %v lost", counts, many, many/2)
				}
			})
		})
	}
}

// TestNilProviderCostsNothing checks that a nil provider wraps nothing and does not allocate.
func TestNilProviderCostsNothing(t *testing.T) {
	var provider *tracing.Provider
	next := http.NewServeMux()
	if got := provider.Handler(tracing.Incoming{}, next); got != http.Handler(next) {
		t.Errorf("Handler() = %T, want the next handler itself", got)
	}
	if got := provider.Transport(http.DefaultTransport); got != http.DefaultTransport {
		t.Errorf("Transport() = %T, want %v", got, http.DefaultTransport)
	}
	if provider.ChildrenOnly() != nil {
		t.Errorf("ChildrenOnly() of a nil provider = %v, want nil", provider.ChildrenOnly())
	}
	provider.Close()
	ctx := t.Context()
	allocations := 1.0
	for range 20 { // leftovers of earlier tests may allocate
		allocations = min(allocations, testing.AllocsPerRun(10, func() {
			inner, span := tracing.Start(ctx, "x", nil)
			if inner != ctx {
				t.Error("Start() without a provider returned another context, want the given one")
			}
			span.Fail(nil)
			span.End()
		}))
	}
	if allocations != 0 {
		t.Errorf("%v allocations, want 0", allocations)
	}
}
