package build

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"binnacle/libs/tracing/tracingtest"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// wantedSpan is a span that a request must have, with at least these attributes and events.
type wantedSpan struct {
	name, parent string
	attributes   map[string]string
	events       []string
}

// missingSpans returns what of the wanted spans a trace lacks.
func missingSpans(spans []tracingtest.Span, trace string, want []wantedSpan) (out []string) {
	byID := map[string]string{}
	for _, span := range spans {
		byID[span.ID] = span.Name
	}
	for _, wanted := range want {
		if !slices.ContainsFunc(spans, func(span tracingtest.Span) bool {
			if span.Trace != trace || span.Name != wanted.name || wanted.parent != "" && byID[span.Parent] != wanted.parent {
				return false
			}
			for name, value := range wanted.attributes {
				if got, ok := span.Attributes[name]; !ok || got != value {
					return false
				}
			}
			for _, event := range wanted.events {
				if !slices.Contains(span.Events, event) {
					return false
				}
			}
			return true
		}) {
			out = append(out, wanted.name)
		}
	}
	return out
}

// wantSpans checks the received spans of a trace. A server exports its last spans when it stops.
func wantSpans(t *testing.T, c *tracingtest.Collector, trace string, want []wantedSpan) {
	t.Helper()
	if lacks := missingSpans(c.Spans(), trace, want); len(lacks) > 0 {
		t.Errorf("got a trace without spans %v, want them", lacks)
	}
}

// unsampled returns a configuration of traces without a rate.
func unsampled(t *testing.T, c *tracingtest.Collector) string {
	t.Helper()
	return tracingtest.File(t, "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nendpoint: "+c.Endpoint+"\n")
}

// traceparent returns a header for a sampled trace.
func traceparent(trace string) string { return "00-" + trace + "-b7ad6b7169203331-01" }

// TestRequestSpansMatchKubernetes sends the requests of TestAPIServerTracing of Kubernetes and
// expects its spans.
func TestRequestSpansMatchKubernetes(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	collector := tracingtest.Start(t)
	etcd := etcdtest.ListeningServer(t)
	api := startServer(t, func(options *config.Options) {
		options.Etcd.Backend = config.BackendEtcd
		options.Etcd.Servers = []string{etcd.Endpoint()}
		options.Tracing.ConfigFile = unsampled(t, collector)
	})
	const nodes, node, accept = "/api/v1/nodes", "/api/v1/nodes/fake", "application/vnd.kubernetes.protobuf, */*"
	message := wantedSpan{attributes: map[string]string{"rpc.system": "grpc"}, events: []string{"message"}}
	create := []string{
		"limitedReadBody succeeded", "About to convert to expected version", "Conversion done", "About to store object in database",
		"Write to database call succeeded", "About to write a response", "Writing http response done",
	}
	update := []string{
		"initial value restored", "About to Encode", "Encode succeeded", "TransformToStorage succeeded", "Transaction prepared",
		"Txn call completed", "Transaction committed", "decode succeeded",
	}
	wanted := map[string][]wantedSpan{} // by trace
	for i, test := range []struct {
		method, path, body, media string
		root, operation           string
		events                    []string
		store                     wantedSpan
		call                      string
	}{
		{
			method:    "POST",
			path:      nodes,
			body:      `{"metadata":{"name":"fake"}}`,
			root:      "POST /api/v1/nodes",
			operation: "Create",
			events:    create,
			store: wantedSpan{
				name: "Create etcd3",
				events: []string{
					"About to Encode", "Encode succeeded", "TransformToStorage succeeded",
					"Txn call succeeded", "decode succeeded",
				},
			},
			call: "etcdserverpb.KV/Txn",
		},
		{
			method:    "GET",
			path:      node,
			root:      "GET /api/v1/nodes/{:name}",
			operation: "Get",
			events:    []string{"About to Get from storage", "About to write a response", "Writing http response done"},
			store: wantedSpan{
				name:       "cacher.Get",
				attributes: map[string]string{"resource-version": ""},
				events:     []string{"About to Get from underlying storage"},
			},
			call: "etcdserverpb.KV/Range",
		},
		{
			method:    "GET",
			path:      nodes,
			root:      "GET /api/v1/nodes",
			operation: "List",
			events:    []string{"About to List from storage", "Listing from storage done", "Writing http response done"},
			store:     wantedSpan{name: "cacher.GetList", events: []string{"Ready"}},
			call:      "etcdserverpb.KV/Range",
		},
		{
			method:    "PUT",
			path:      node,
			body:      `{"metadata":{"name":"fake","annotations":{"foo":"bar"}}}`,
			root:      "PUT /api/v1/nodes/{:name}",
			operation: "Update",
			events:    create,
			store:     wantedSpan{name: "GuaranteedUpdate etcd3", events: update},
			call:      "etcdserverpb.KV/Txn",
		},
		{
			method:    "PATCH",
			path:      node,
			body:      `{"metadata":{"labels":{"hello":"world"}}}`,
			media:     "application/strategic-merge-patch+json",
			root:      "PATCH /api/v1/nodes/{:name}",
			operation: "Patch",
			events: []string{
				"limitedReadBody succeeded", "Recorded the audit event",
				"About to apply patch", "About to check admission control", "Object stored in database",
				"About to write a response", "Writing http response done",
			},
			store: wantedSpan{name: "GuaranteedUpdate etcd3", events: update},
			call:  "etcdserverpb.KV/Txn",
		},
		{
			method:    "DELETE",
			path:      node,
			body:      `{"apiVersion":"v1","kind":"DeleteOptions"}`,
			root:      "DELETE /api/v1/nodes/{:name}",
			operation: "Delete",
			events: []string{
				"limitedReadBody succeeded", "Decoded delete options",
				"Recorded the audit event", "About to delete object from database", "Object deleted from database",
				"About to write a response", "Writing http response done",
			},
			store: wantedSpan{name: "Delete etcd3"},
			call:  "etcdserverpb.KV/Txn",
		},
	} {
		t.Run(test.operation, func(t *testing.T) {
			trace := fmt.Sprintf("0af7651916cd43dd8448eb211c8031%02x", i)
			header := []string{"Traceparent", traceparent(trace), "Accept", accept, "User-Agent", "tracing.test", "Audit-Id", "the-one"}
			if test.media != "" {
				header = append(header, "Content-Type", test.media)
			}
			if response := api.send(test.method, test.path, test.body, header...); response.code/100 != 2 {
				t.Fatalf("got status %d: %s, want 2xx", response.code, response.body)
			}
			test.store.parent = test.operation
			if test.store.attributes == nil {
				test.store.attributes = map[string]string{}
			}
			test.store.attributes["audit-id"] = "the-one"
			if test.operation != "List" {
				test.store.attributes["key"] = "/minions/fake"
			}
			if slices.Contains([]string{"Create", "Update", "Patch"}, test.operation) {
				maps.Copy(test.store.attributes, map[string]string{"type": "*core.Node", "resource": "nodes"})
			}
			call := message
			call.name = test.call
			call.parent = test.store.name
			wanted[trace] = []wantedSpan{
				{
					name:       test.root,
					attributes: map[string]string{"user_agent.original": "tracing.test", "http.target": test.path, "http.method": test.method},
				},
				{
					name:   test.operation,
					parent: test.root,
					events: test.events,
					attributes: map[string]string{
						"url":        test.path,
						"user-agent": "tracing.test",
						"audit-id":   "the-one",
						"client":     "127.0.0.1",
						"accept":     accept,
						"protocol":   "HTTP/2.0",
					},
				},
				test.store, call,
				{
					name:   "SerializeObject",
					parent: test.operation,
					events: []string{"About to start writing response", "Write call succeeded"},
					attributes: map[string]string{
						"url":       test.path,
						"audit-id":  "the-one",
						"protocol":  "HTTP/2.0",
						"method":    test.method,
						"mediaType": "application/vnd.kubernetes.protobuf",
						"encoder":   `{"encodeGV":"v1","encoder":"protobuf","name":"versioning"}`,
					},
				},
			}
		})
	}
	api.stop()
	for trace, want := range wanted {
		wantSpans(t, collector, trace, want)
	}
}

// TestEncryptionSpansMatchKubernetes expects the spans of TestAPIServerTracingWithKMSv2 of
// Kubernetes. Reads come from memory, so a request decrypts only if it reads the store, as an
// update without changes does.
func TestEncryptionSpansMatchKubernetes(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	collector := tracingtest.Start(t)
	plugin := kmstest.New(t)
	api, _ := encrypted(t, encrypting("secrets",
		"kms: {apiVersion: v2, name: kms-provider, endpoint: "+plugin.Endpoint()+"}"), func(options *config.Options) {
		options.Tracing.ConfigFile = unsampled(t, collector)
	})
	const (
		secrets = "/api/v1/namespaces/default/secrets"
		writing = "0af7651916cd43dd8448eb211c803101"
		reading = "0af7651916cd43dd8448eb211c803102"
	)
	provider := map[string]string{"transformer.provider.name": "kms-provider"}
	api.mustSend(201, "POST", secrets, secret("fake", "bar"), "Traceparent", traceparent(writing))
	api.mustSend(200, "PUT", secrets+"/fake", secret("fake", "bar"), "Traceparent", traceparent(reading))
	api.stop()
	wantSpans(t, collector, writing, []wantedSpan{{
		name:       "TransformToStorage with envelopeTransformer",
		parent:     "Create etcd3",
		attributes: provider,
		events: []string{
			"About to encrypt data using DEK", "Data encryption succeeded", "About to encode encrypted object", "Encoded encrypted object",
		},
	}})
	wantSpans(t, collector, reading, []wantedSpan{{
		name:       "TransformFromStorage with envelopeTransformer",
		parent:     "Get etcd3",
		attributes: provider,
		events: []string{
			"About to decode encrypted object", "Decoded encrypted object", "About to decrypt data using DEK", "Data decryption succeeded",
		},
	}})
}

// TestOnlyPrivilegedUsersContinueTraces sends sampled and unsampled traces of several users.
func TestOnlyPrivilegedUsersContinueTraces(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	collector := tracingtest.Start(t)
	api := startServer(t, func(options *config.Options) {
		options.Tracing.ConfigFile = unsampled(t, collector)
		options.Authentication.TokenFile = tracingtest.File(t, "watcher,watcher,1,system:monitoring\nother,other,2,others\n")
	})
	const (
		masters      = "0af7651916cd43dd8448eb211c803101"
		monitoring   = "0af7651916cd43dd8448eb211c803102"
		other        = "0af7651916cd43dd8448eb211c803103"
		impersonated = "0af7651916cd43dd8448eb211c803104"
		anonymous    = "0af7651916cd43dd8448eb211c803105"
		rejected     = "0af7651916cd43dd8448eb211c803106"
	)
	b := api.bearer()
	b.get("/healthz", "Traceparent", traceparent(anonymous))
	b.get("/version", "Traceparent", traceparent(rejected), "Authorization", "Bearer unknown")
	b.get("/version", "Traceparent", traceparent(other), "Authorization", "Bearer other")
	api.get("/version", "Traceparent", strings.TrimSuffix(traceparent(other), "1")+"0")
	api.get("/version", "Traceparent", traceparent(impersonated), "Impersonate-User", "other")
	b.get("/version", "Traceparent", traceparent(monitoring), "Authorization", "Bearer watcher")
	api.get("/version", "Traceparent", traceparent(masters))
	api.stop()
	for _, trace := range []string{masters, monitoring, impersonated} {
		wantSpans(t, collector, trace, []wantedSpan{{name: "GET", attributes: map[string]string{"http.method": "GET"}}})
	}
	for _, s := range collector.Spans() {
		if slices.Contains([]string{other, anonymous, rejected}, s.Trace) || s.Name == "authentication" {
			t.Errorf("got span %q of trace %s, want none of unsampled requests, and none of authentication", s.Name, s.Trace)
		}
	}
}
