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

const head = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\n"

// TestConfigurations checks the errors for invalid configuration files.
func TestConfigurations(t *testing.T) {
	for _, test := range []struct{ name, content, want string }{
		{name: "all of it", content: head + "endpoint: localhost:4317\nsamplingRatePerMillion: 100\n"},
		{name: "nothing said", content: head},
		{name: "the older version", content: strings.Replace(head, "v1beta1", "v1alpha1", 1)},
		{name: "a socket", content: head + "endpoint: unix:///run/otel.sock\n"},
		{
			name:    "another version",
			content: strings.Replace(head, "v1beta1", "v2", 1),
			want:    `no kind "TracingConfiguration" is registered for version "apiserver.config.k8s.io/v2"`,
		},
		{
			name:    "another kind",
			content: strings.Replace(head, "Tracing", "Audit", 1),
			want:    `no kind "AuditConfiguration" is registered`,
		},
		{name: "no kind", content: "endpoint: a:1\n", want: "Object 'Kind' is missing"},
		{name: "an unknown field", content: head + "rate: 1\n", want: `strict decoding error: unknown field "rate"`},
		{name: "a field twice", content: head + "endpoint: a:1\nendpoint: b:1\n", want: `key "endpoint" already set in map`},
		{
			name:    "a wrong type",
			content: head + "samplingRatePerMillion: many\n",
			want:    "unable to decode tracing configuration data",
		},
		{name: "no YAML", content: "{", want: "unable to decode tracing configuration data"},
		{
			name:    "a negative rate",
			content: head + "samplingRatePerMillion: -1\n",
			want:    "samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
		},
		{
			name:    "too high a rate",
			content: head + "samplingRatePerMillion: 1000001\n",
			want:    "sampling rate per million must be less than or equal to one million",
		},
		{
			name:    "another scheme",
			content: head + "endpoint: http://localhost:4317\n",
			want:    `endpoint: Invalid value: "http://localhost:4317": unsupported scheme: http.`,
		},
		{name: "no address", content: head + "endpoint: dn%2s://localhost:4317\n", want: "endpoint: Invalid value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := tracing.Options{ConfigFile: tracingtest.File(t, test.content)}
			got, err := o.Read()
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
		t.Errorf("missing file: %v", err)
	}
	if c, err := (&tracing.Options{}).Read(); c != nil || err != nil {
		t.Errorf("no file: got %v, %v, want no configuration", c, err)
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

// TestSamplingDecision checks that only the rate applies to untrusted callers, and the caller's
// trace to others.
func TestSamplingDecision(t *testing.T) {
	all, none := "samplingRatePerMillion: 1000000\n", ""
	for _, test := range []struct {
		name, rate, parent string
		public             bool
		spans              int
		goesOn, linked     bool
	}{
		{name: "no parent, all", rate: all, spans: 1},
		{name: "no parent, none", rate: none},
		{name: "sampled parent, none", rate: none, parent: sampled, spans: 1, goesOn: true},
		{name: "sampled parent, none, public", rate: none, parent: sampled, public: true},
		{name: "sampled parent, all, public", rate: all, parent: sampled, public: true, spans: 1, linked: true},
		{name: "unsampled parent, all", rate: all, parent: unsampled},
		{name: "unsampled parent, all, public", rate: all, parent: unsampled, public: true, spans: 1, linked: true},
		{name: "damaged parent, all", rate: all, parent: "00-zz-zz-01", spans: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			collector := tracingtest.Start(t)
			p, _ := provider(t, head+test.rate+"endpoint: "+collector.Endpoint+"\n", nil)
			var sent string
			next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				out, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://elsewhere.example/x", nil)
				response, err := p.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
					sent = r.Header.Get("Traceparent")
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
			r := httptest.NewRequest(http.MethodGet, "/x", nil)
			if test.parent != "" {
				r.Header.Set("Traceparent", test.parent)
			}
			p.Handler(tracing.Incoming{Follow: func(*http.Request) bool { return !test.public }},
				next).ServeHTTP(httptest.NewRecorder(), r)
			p.Close()
			spans := collector.Spans()
			if len(spans) != 2*test.spans {
				t.Fatalf("%d spans: %+v, want %v", len(spans), spans, 2*test.spans)
			}
			if flag := strings.HasSuffix(sent, "-01"); sent == "" || flag != (test.spans > 0) {
				t.Errorf("got propagated traceparent %q, want it sampled: %t", sent, test.spans > 0)
			}
			for _, span := range spans {
				const trace = "0af7651916cd43dd8448eb211c80319c"
				if (span.Trace == trace) != test.goesOn {
					t.Errorf("span %s: got trace %s, want that of the client, %s: %t", span.Name, span.Trace, trace, test.goesOn)
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
	p, _ := provider(t, head+"samplingRatePerMillion: 1000000\nendpoint: "+collector.Endpoint+"\n", nil)
	long := strings.Repeat("x", 1<<20)
	h := p.Handler(tracing.Incoming{Name: func(r *http.Request) string { return r.URL.Path }},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest(http.MethodGet, "/"+long, nil)
	r.Header.Set("User-Agent", long)
	h.ServeHTTP(httptest.NewRecorder(), r)
	p.Close()
	for _, s := range collector.Spans() {
		size := len(s.Name)
		for _, v := range s.Attributes {
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
				p, metrics := provider(t, head+"samplingRatePerMillion: 1000000\nendpoint: collector:4317\n", dial)
				h := p.Handler(tracing.Incoming{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				const many = 10_000 // more than the queue holds
				for range many {
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/x", nil))
				}
				p.Close()
				got, err := metrics.Gather()
				if err != nil {
					t.Fatal(err)
				}
				counts := map[string]float64{}
				for _, m := range got[0].GetMetric() {
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
	n := 1.0
	for range 20 { // leftovers of earlier tests may allocate
		n = min(n, testing.AllocsPerRun(10, func() {
			inner, span := tracing.Start(ctx, "x", nil)
			if inner != ctx {
				t.Error("Start() without a provider returned another context, want the given one")
			}
			span.Fail(nil)
			span.End()
		}))
	}
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
