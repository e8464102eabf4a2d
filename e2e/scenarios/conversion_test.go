package scenarios

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"binnacle/e2e/harness"
)

var definitionsGVR = schema.GroupVersionResource{
	Group:    "apiextensions.k8s.io",
	Version:  "v1",
	Resource: "customresourcedefinitions",
}

// converter is a conversion webhook between v1 with spec.hostPort and v2 with spec.host and
// spec.port.
type converter struct {
	t    *testing.T
	addr string

	mu       sync.Mutex
	server   *http.Server
	requests int                                            // number of requests
	change   func(http.ResponseWriter, map[string]any) bool // changes a response; true if it has responded
	hold     chan struct{}                                  // delays responses until it is closed; may be nil
}

// startConverter returns a webhook that does not serve yet.
func startConverter(t *testing.T) *converter {
	c := &converter{t: t, addr: fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))}
	t.Cleanup(c.stop)
	return c
}

// start starts to serve with a certificate.
func (c *converter) start(p harness.Pair) {
	c.t.Helper()
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	var listener net.Listener
	harness.Eventually(c.t, 10*time.Second, "the port of the webhook to be free", func() (err error) {
		listener, err = net.Listen("tcp", c.addr)
		return err
	})
	server := &http.Server{
		Handler: http.HandlerFunc(c.serveConversion), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}
	c.mu.Lock()
	c.server = server
	c.mu.Unlock()
	go func() { _ = server.ServeTLS(listener, "", "") }()
}

// stop closes all connections and stops to serve.
func (c *converter) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil {
		_ = c.server.Close()
		c.server = nil
	}
}

// setBehaviour changes the handling of requests; see the fields.
func (c *converter) setBehaviour(change func(http.ResponseWriter, map[string]any) bool, hold chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change = change
	c.hold = hold
}

// callCount returns the number of requests so far.
func (c *converter) callCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// serveConversion serves a ConversionReview.
func (c *converter) serveConversion(w http.ResponseWriter, r *http.Request) {
	var test struct {
		APIVersion string
		Request    struct {
			UID               string
			DesiredAPIVersion string
			Objects           []*unstructured.Unstructured
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&test); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.requests++
	change := c.change
	hold := c.hold
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	for _, object := range test.Request.Objects {
		object.SetAPIVersion(test.Request.DesiredAPIVersion)
		spec, _, _ := unstructured.NestedMap(object.Object, "spec")
		if strings.HasSuffix(test.Request.DesiredAPIVersion, "/v1") {
			spec["hostPort"] = fmt.Sprint(spec["host"], ":", spec["port"])
		} else {
			host, port, _ := strings.Cut(fmt.Sprint(spec["hostPort"]), ":")
			spec["host"], spec["port"] = host, port
		}
		_ = unstructured.SetNestedMap(object.Object, spec, "spec")
	}
	response := map[string]any{"kind": "ConversionReview", "apiVersion": test.APIVersion, "response": map[string]any{
		"uid": test.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": test.Request.Objects,
	}}
	if change != nil && change(w, response) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(response)
}

// convertedDefinition returns a definition whose objects the webhook at an address converts.
func convertedDefinition(addr string, data []byte) *unstructured.Unstructured {
	field := map[string]any{"type": "string"}
	version := func(name string, stored bool, fields ...string) any {
		props := map[string]any{"size": map[string]any{"type": "integer"}}
		for _, f := range fields {
			props[f] = field
		}
		return map[string]any{
			"name":    name,
			"served":  true,
			"storage": stored,
			"subresources": map[string]any{
				"status": map[string]any{},
				"scale":  map[string]any{"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.n"},
			},
			"additionalPrinterColumns": []any{map[string]any{
				"name":     "First",
				"type":     "string",
				"jsonPath": ".spec." + fields[0],
			}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"spec":   map[string]any{"type": "object", "properties": props},
				"status": map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer"}}},
			}}},
		}
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "eps.conv.test"},
		"spec": map[string]any{
			"group":    "conv.test",
			"scope":    "Namespaced",
			"names":    map[string]any{"plural": "eps", "singular": "ep", "kind": "Ep", "listKind": "EpList"},
			"versions": []any{version("v1", true, "hostPort"), version("v2", false, "host", "port")},
			"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{
				"conversionReviewVersions": []any{"v1"}, "clientConfig": map[string]any{"url": "https://" + addr + "/convert"},
			}},
		},
	}}
	b, _ := json.Marshal(data)
	var text string
	_ = json.Unmarshal(b, &text)
	_ = unstructured.SetNestedField(object.Object, text, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	return object
}

// conversionTest is a server with a definition whose objects a webhook converts.
type conversionTest struct {
	*testing.T
	server    *harness.Server
	client    *dynamic.DynamicClient
	authority *harness.PKI // of the webhook's certificate
	hook      *converter
	// older and newer are the resource in v1, which is stored, and in v2.
	older, newer dynamic.ResourceInterface
}

// startConversionTest starts a server and a webhook, and creates the definition.
func startConversionTest(t *testing.T) *conversionTest {
	t.Helper()
	server := harness.StartServer(t)
	started := &conversionTest{
		T:         t,
		server:    server,
		client:    dynamic.NewForConfigOrDie(server.Config()),
		authority: harness.NewPKI(t),
		hook:      startConverter(t),
	}
	createNamespace(t, server.Client(), "f")
	started.hook.start(started.authority.Serving("hook"))
	definition := convertedDefinition(started.hook.addr, readFile(t, started.authority.CA))
	if _, err := started.client.Resource(definitionsGVR).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eps := func(version string) dynamic.ResourceInterface {
		return started.client.Resource(schema.GroupVersionResource{
			Group:    "conv.test",
			Version:  version,
			Resource: "eps",
		}).Namespace("f")
	}
	started.older = eps("v1")
	started.newer = eps("v2")
	return started
}

// createOlder creates an object in the stored version.
func (c *conversionTest) createOlder(name, hostPort string) error {
	_, err := c.older.Create(c.Context(), endpointObject("v1", name, map[string]any{"hostPort": hostPort}),
		metav1.CreateOptions{})
	return err
}

// createNewer creates an object in the version that is not stored.
func (c *conversionTest) createNewer(name, host, port string) (*unstructured.Unstructured, error) {
	return c.newer.Create(c.Context(), endpointObject("v2", name, map[string]any{"host": host, "port": port}),
		metav1.CreateOptions{})
}

// readFile returns the content of a file.
func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// endpointObject returns an object of the definition.
func endpointObject(version, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "conv.test/" + version, "kind": "Ep", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// specJSON returns the JSON of the spec of an object.
func specJSON(o *unstructured.Unstructured) string {
	b, _ := json.Marshal(o.Object["spec"])
	return string(b)
}

// TestConversionWebhook converts custom resources with a webhook that works, hangs, exits, returns
// invalid responses and changes its certificate. The steps run in order.
func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	conversionTest := startConversionTest(t)
	watching := conversionTest.testVerbs()
	conversionTest.testSharedCalls(watching)
	conversionTest.testFailures()
	conversionTest.testHangingWebhook()
	conversionTest.testChangedCA()
	conversionTest.testDeletion()
}

// testVerbs tests every verb in the version that is not stored. It returns its watch.
func (c *conversionTest) testVerbs() watch.Interface {
	client, err := c.newer.Watch(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(client.Stop)
	created, err := c.createNewer("a", "h", "1")
	if err != nil || specJSON(created) != `{"host":"h","port":"1"}` || created.GetAPIVersion() != "conv.test/v2" {
		c.Fatalf("create: got %v, %v, want v2 with host h and port 1", created, err)
	}
	if ev := <-client.ResultChan(); ev.Type != watch.Added ||
		specJSON(ev.Object.(*unstructured.Unstructured)) != `{"host":"h","port":"1"}` {
		c.Errorf("watch: got %v, want ADDED with host h and port 1", ev)
	}
	if o, err := c.older.Get(c.Context(), "a", metav1.GetOptions{}); err != nil || specJSON(o) != `{"hostPort":"h:1"}` {
		c.Errorf("get in the stored version: got %v, %v, want hostPort h:1", o, err)
	}
	patch := func(body string, subresources ...string) (*unstructured.Unstructured, error) {
		return c.newer.Patch(c.Context(), "a", types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
	}
	if o, err := patch(`{"spec":{"port":"2"}}`); err != nil || specJSON(o) != `{"host":"h","port":"2"}` ||
		o.GetGeneration() != 2 {
		c.Errorf("patch: got %v, %v, want host h, port 2 and generation 2", o, err)
	}
	if o, err := patch(`{"status":{"n":3}}`, "status"); err != nil || fmt.Sprint(o.Object["status"]) != "map[n:3]" {
		c.Errorf("patch of the status: got %v, %v, want n 3", o, err)
	}
	if o, err := patch(`{"spec":{"replicas":4}}`, "scale"); err != nil || fmt.Sprint(o.Object["spec"]) != "map[replicas:4]" {
		c.Errorf("patch of the scale: got %v, %v, want 4 replicas", o, err)
	}
	applied, err := c.newer.Apply(c.Context(), "b",
		endpointObject("v2", "b", map[string]any{"host": "b", "port": "9"}), metav1.ApplyOptions{FieldManager: "me"})
	if err != nil || specJSON(applied) != `{"host":"b","port":"9"}` {
		c.Errorf("apply: got %v, %v, want host b and port 9", applied, err)
	}
	table := harness.NewCLI(c.T, c.server).WithNamespace("f").Run(c.T, "get", "eps.v2.conv.test")
	if !strings.Contains(table, "FIRST") || !strings.Contains(table, "a      h") {
		c.Errorf("table: want column FIRST with h for a, got\n%s", table)
	}
	return client
}

// testSharedCalls checks that a list is converted in one call, which concurrent requests share. It
// stops the watch before it counts calls.
func (c *conversionTest) testSharedCalls(watching watch.Interface) {
	for i := range 100 {
		if err := c.createOlder(fmt.Sprint("many-", i), fmt.Sprint("h:", i)); err != nil {
			c.Fatal(err)
		}
	}
	watching.Stop()
	before := c.hook.callCount()
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if l, err := c.newer.List(c.Context(), metav1.ListOptions{}); err != nil || len(l.Items) != 102 {
				c.Errorf("list: got %d items, %v, want 102", len(l.Items), err)
			}
		})
	}
	group.Wait()
	if n := c.hook.callCount() - before; n > 3 {
		c.Errorf("got %d calls for ten lists, want at most 3", n)
	}
}

// testFailures checks that invalid responses, closed connections and crashes fail only requests
// that need a conversion.
func (c *conversionTest) testFailures() {
	c.hook.setBehaviour(func(_ http.ResponseWriter, response map[string]any) bool {
		response["response"].(map[string]any)["result"] = map[string]any{"status": "Failure", "message": "cannot convert"}
		return false
	}, nil)
	c.mustCreateOlder("nonsense")
	c.checkRejected("nonsense", "conversion webhook for conv.test/v1, Kind=Ep failed: cannot convert")
	c.hook.setBehaviour(func(w http.ResponseWriter, _ map[string]any) bool { panic(http.ErrAbortHandler) }, nil)
	c.mustCreateOlder("cut")
	c.checkRejected("cut", "conversion webhook for conv.test/v1, Kind=Ep failed: Post ")
	c.hook.setBehaviour(nil, nil)
	c.hook.stop()
	c.mustCreateOlder("dead")
	c.checkRejected("dead", "connection refused")
	c.hook.start(c.authority.Serving("hook"))
}

// mustCreateOlder creates an object in the stored version, which needs no conversion.
func (c *conversionTest) mustCreateOlder(name string) {
	c.Helper()
	if err := c.createOlder(name, "h:1"); err != nil {
		c.Fatalf("stored version while the webhook fails: got %v", err)
	}
}

// checkRejected checks that requests in the version that is not stored fail with an error, and that
// others succeed. It deletes the object.
func (c *conversionTest) checkRejected(name, want string) {
	c.Helper()
	_, err := c.newer.Get(c.Context(), name, metav1.GetOptions{})
	if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown || !strings.Contains(fmt.Sprint(err), want) {
		c.Errorf("get: got %v, want %s", err, want)
	}
	if _, err := c.newer.List(c.Context(), metav1.ListOptions{}); !strings.Contains(fmt.Sprint(err), want) {
		c.Errorf("list: got %v, want %s", err, want)
	}
	if _, err := c.createNewer("never", "h", "1"); err == nil {
		c.Error("create in the version that is not stored: got no error, want one")
	}
	if l, err := c.older.List(c.Context(), metav1.ListOptions{}); err != nil || len(l.Items) < 103 {
		c.Errorf("list of the stored version: got %d items, %v, want at least 103", len(l.Items), err)
	}
	if err := c.older.Delete(c.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.Errorf("delete in the stored version: got %v", err)
	}
}

// testHangingWebhook checks that a hanging webhook delays a request at most until the request's
// timeout.
func (c *conversionTest) testHangingWebhook() {
	hold := make(chan struct{})
	c.hook.setBehaviour(nil, hold)
	c.mustCreateOlder("slow")
	short, cancel := context.WithTimeout(c.Context(), time.Second)
	if _, err := c.newer.Get(short, "slow", metav1.GetOptions{}); err == nil {
		c.Error("request with a hanging webhook: got no error, want a timeout")
	}
	cancel()
	if code := getWithTimeout(c.T, c.server,
		"/apis/conv.test/v2/namespaces/f/eps/slow?timeout=1s"); code != http.StatusGatewayTimeout {
		c.Errorf("timed-out request: got %d, want %d", code, http.StatusGatewayTimeout)
	}
	start := time.Now()
	code, err := readWithTimeout(c.T, c.server, "/apis/conv.test/v2/namespaces/f/eps?watch=1&timeoutSeconds=2")
	if code != http.StatusOK || err != nil || time.Since(start) > 10*time.Second {
		c.Errorf("watch of 2 s: got status %d after %v, %v, want %d within %v", code, time.Since(start), err,
			http.StatusOK, 10*time.Second)
	}
	close(hold)
	c.hook.setBehaviour(nil, nil)
	if o, err := c.newer.Get(c.Context(), "slow", metav1.GetOptions{}); err != nil || specJSON(o) != `{"host":"h","port":"1"}` {
		c.Errorf("get after recovery: got %v, %v, want host h and port 1", o, err)
	}
}

// testChangedCA checks that a certificate of another CA is rejected until the definition contains
// that CA.
func (c *conversionTest) testChangedCA() {
	c.hook.stop()
	other := harness.NewPKI(c.T)
	c.hook.start(other.Serving("hook"))
	c.mustCreateOlder("rotated")
	if _, err := c.newer.Get(c.Context(), "rotated", metav1.GetOptions{}); !strings.Contains(fmt.Sprint(err), "certificate") {
		c.Errorf("certificate of another CA: got %v, want an error about the certificate", err)
	}
	config := map[string]any{"caBundle": readFile(c.T, other.CA)}
	body, _ := json.Marshal(map[string]any{"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": config}}}})
	if _, err := c.client.Resource(definitionsGVR).Patch(c.Context(), "eps.conv.test", types.MergePatchType, body,
		metav1.PatchOptions{}); err != nil {
		c.Fatal(err)
	}
	if o, err := c.newer.Get(c.Context(), "rotated", metav1.GetOptions{}); err != nil ||
		specJSON(o) != `{"host":"h","port":"1"}` {
		c.Errorf("get after the change of the definition: got %v, %v, want host h and port 1", o, err)
	}
}

// testDeletion checks that the definition is deleted with all its objects although the webhook does
// not respond.
func (c *conversionTest) testDeletion() {
	c.hook.stop()
	if err := c.client.Resource(definitionsGVR).Delete(c.Context(), "eps.conv.test", metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	harness.Eventually(c.T, 20*time.Second, "removal of the definition", func() error {
		_, err := c.client.Resource(definitionsGVR).Get(c.Context(), "eps.conv.test", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still exists: %v", err)
	})
}

// getWithTimeout returns the code of a response to a GET, which must be complete.
func getWithTimeout(t *testing.T, s *harness.Server, path string) int {
	t.Helper()
	code, err := readWithTimeout(t, s, path)
	if err != nil {
		t.Error(err)
	}
	return code
}

// readWithTimeout returns the code of a response to a GET after reading the body, and the error of
// reading it.
func readWithTimeout(t *testing.T, server *harness.Server, path string) (int, error) {
	t.Helper()
	cert, err := tls.X509KeyPair(server.Admin.Cert, server.Admin.Key)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}}, DisableKeepAlives: true,
	}}
	resp, err := c.Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
