package build

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"binnacle/libs/features"
	"binnacle/libs/tracing/tracingtest"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// startBus starts a NATS server until the test ends.
func startBus(t *testing.T) *server.Server {
	t.Helper()
	bus, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	go bus.Start()
	t.Cleanup(bus.Shutdown)
	if !bus.ReadyForConnections(20 * time.Second) {
		t.Fatal("NATS does not listen")
	}
	return bus
}

// TestWriteIsOneTrace follows a write through filters, admission, a webhook, the store and etcd to
// its delivery at every replica.
func TestWriteIsOneTrace(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	collector := tracingtest.Start(t)
	etcd := etcdtest.ListeningServer(t)
	bus := startBus(t)
	replica := func() *testServer {
		return startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{etcd.Endpoint()}
			options.Fanout.Servers = []string{bus.ClientURL()}
			options.Tracing.ConfigFile = collector.Config(t)
		})
	}
	first := replica()
	second := replica()
	var mu sync.Mutex
	var traceparents []string // traceparent headers at the webhook
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		traceparents = append(traceparents, r.Header.Get("Traceparent"))
		mu.Unlock()
		uid := reviewUID(r)
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, uid)
	}))
	t.Cleanup(hook.Close)
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	first.mustSend(201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
		fmt.Sprintf(`{"metadata":{"name":"h"},"webhooks":[{"name":"h.ex.test","clientConfig":{"url":%q,"caBundle":%q},"sideEffects":"None","admissionReviewVersions":["v1"],"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}]}]}`,
			hook.URL, bundle))

	// 1. Create an object as part of a caller's trace, and wait for its delivery.
	const caller, callerSpan = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	first.mustSend(201, "POST", configMaps, configMap("traced"), "Traceparent", "00-"+caller+"-"+callerSpan+"-01", "Audit-Id", "the-one")
	for _, replica := range []*testServer{first, second} {
		replica.waitUntil("delivered", func() bool { return replica.get(configMaps+"/traced?resourceVersion=0").code == 200 })
	}

	// 2. Stop the servers, which then export all spans.
	root := func(spans []tracingtest.Span) (found tracingtest.Span) {
		for _, span := range spans {
			if span.Name == "POST /api/v1/namespaces/{:namespace}/configmaps" {
				found = span
			}
		}
		return found
	}
	want := map[string]int{
		"authorization": 1, "priorityandfairness": 1, "Create": 1, "Mutating admission": 1, "Validating admission": 1,
		"Call validating webhook": 1, "HTTP POST": 1, "Create etcd3": 1, "etcdserverpb.KV/Txn": 1, "Deliver change": 2,
	}
	second.stop()
	first.stop()
	spans := collector.Spans()
	requestSpan := root(spans)
	got := map[string]int{}
	for _, span := range spans {
		if span.Trace == requestSpan.Trace {
			got[span.Name]++
		}
	}
	for name, n := range want {
		if got[name] < n {
			t.Errorf("got %d spans %q in the trace of the request, want at least %d", got[name], name, n)
		}
	}

	// 3. The span of the request is a child of the caller's.
	if requestSpan.Trace != caller || requestSpan.Parent != callerSpan {
		t.Errorf("got trace %s, parent %s; want %s, %s", requestSpan.Trace, requestSpan.Parent, caller, callerSpan)
	}
	if n := len(requestSpan.Links); n != 0 {
		t.Errorf("request span has %d links, want 0", n)
	}
	for key, want := range map[string]string{"http.status_code": "201", "http.method": "POST", "http.target": configMaps} {
		if got := requestSpan.Attributes[key]; got != want {
			t.Errorf("request span has %s = %q, want %q", key, got, want)
		}
	}

	// 4. Every step of the write is a child of the step that started it.
	byID := map[string]tracingtest.Span{}
	parent := map[string]string{}
	replicas := map[string]string{}
	for _, span := range spans {
		byID[span.ID] = span
	}
	for _, span := range spans {
		if span.Trace == requestSpan.Trace {
			parent[span.Name] = byID[span.Parent].Name
			if span.Name == "Deliver change" {
				replicas[span.Attributes["replica"]] = span.Instance
			}
			if span.Name == "Create" &&
				(span.Attributes["audit-id"] != "the-one" || span.Attributes["resource"] != "configmaps" ||
					span.Attributes["verb"] != "POST" || len(span.Events) == 0) {
				t.Errorf("got span of the operation %+v, want audit-id the-one, resource configmaps, verb POST and events", span)
			}
			if span.Name == "Call validating webhook" &&
				(span.Attributes["configuration"] != "h" || span.Attributes["webhook"] != "h.ex.test" || span.Attributes["operation"] != "CREATE") {
				t.Errorf("got span of the webhook %+v, want configuration h, webhook h.ex.test, operation CREATE", span)
			}
		}
	}
	for child, wantParent := range map[string]string{
		"Create": requestSpan.Name, "Call validating webhook": "Validating admission", "HTTP POST": "Call validating webhook",
		"Validating admission": "Create", "Create etcd3": "Create", "etcdserverpb.KV/Txn": "Create etcd3", "Deliver change": "Create",
	} {
		if parent[child] != wantParent {
			t.Errorf("%s is below %q, want %s", child, parent[child], wantParent)
		}
	}
	if len(replicas) != 2 {
		t.Errorf("got deliveries at %v, want 2 replicas", replicas)
	}

	// 5. Internal writes have their own traces.
	own := map[string]bool{}
	for _, span := range spans {
		own[span.ID] = strings.HasPrefix(span.Name, "loopback POST /api") && span.Parent == ""
	}
	if !slices.ContainsFunc(spans, func(s tracingtest.Span) bool { return s.Name == "Create etcd3" && own[s.Parent] }) {
		t.Error("got no store span below an internal request, want one")
	}

	// 6. The webhook received the trace of the request.
	mu.Lock()
	defer mu.Unlock()
	if len(traceparents) != 1 || !strings.Contains(traceparents[0], requestSpan.Trace) {
		t.Errorf("webhook received Traceparent %v, want one header with %s", traceparents, requestSpan.Trace)
	}
}

// TestInvalidTracingConfigFailsStart checks that the server does not start with an invalid tracing file,
// or with one but without the feature gate.
func TestInvalidTracingConfigFailsStart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, content, want string
		disabled            bool
	}{
		{name: "bad file", content: "kind: X", want: "failed to read tracing config: unable to decode tracing configuration data: "},
		{
			name:    "bad rate",
			content: "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nsamplingRatePerMillion: -2",
			want:    "failed to validate tracing configuration: samplingRatePerMillion: Invalid value: -2",
		},
		{
			name:     "gate off",
			disabled: true,
			content:  "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration",
			want:     "APIServerTracing feature is not enabled, but tracing config file was provided",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := testOptions(t, t.TempDir())
			options.Tracing.ConfigFile = tracingtest.File(t, test.content)
			if test.disabled {
				if err := options.Features.Set(string(features.APIServerTracing) + "=false"); err != nil {
					t.Fatal(err)
				}
			}
			if err := options.Complete(); err != nil {
				t.Fatal(err)
			}
			err := buildAndRelease(t.Context(), options, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want an error with %q", err, test.want)
			}
		})
	}
}

// reviewUID returns the UID that a webhook must return.
func reviewUID(r *http.Request) string {
	var body bytes.Buffer
	if _, err := body.ReadFrom(r.Body); err != nil {
		return ""
	}
	return fmt.Sprint(apiResponse{body: body.Bytes()}.field("request", "uid"))
}
