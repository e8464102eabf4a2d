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

var definitionsGVR = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// converter is a conversion webhook between v1 with spec.hostPort and v2 with spec.host and
// spec.port.
type converter struct {
	t    *testing.T
	addr string

	mu     sync.Mutex
	server *http.Server
	asked  int
	bend   func(http.ResponseWriter, map[string]any) bool // returns true if it has responded
	hold   chan struct{}                                  // nil: it answers at once
}

func startConverter(t *testing.T) *converter {
	c := &converter{t: t, addr: fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))}
	t.Cleanup(c.kill)
	return c
}

// serve starts to serve with a certificate.
func (c *converter) serve(p harness.Pair) {
	c.t.Helper()
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	var l net.Listener
	harness.Eventually(c.t, 10*time.Second, "the port of the webhook to be free", func() (err error) {
		l, err = net.Listen("tcp", c.addr)
		return err
	})
	s := &http.Server{
		Handler: http.HandlerFunc(c.convert), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}
	c.mu.Lock()
	c.server = s
	c.mu.Unlock()
	go func() { _ = s.ServeTLS(l, "", "") }()
}

func (c *converter) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil {
		_ = c.server.Close()
		c.server = nil
	}
}

func (c *converter) set(bend func(http.ResponseWriter, map[string]any) bool, hold chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bend, c.hold = bend, hold
}

func (c *converter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

func (c *converter) convert(w http.ResponseWriter, r *http.Request) {
	var q struct {
		APIVersion string
		Request    struct {
			UID               string
			DesiredAPIVersion string
			Objects           []*unstructured.Unstructured
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.asked++
	bend, hold := c.bend, c.hold
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	for _, o := range q.Request.Objects {
		o.SetAPIVersion(q.Request.DesiredAPIVersion)
		spec, _, _ := unstructured.NestedMap(o.Object, "spec")
		if strings.HasSuffix(q.Request.DesiredAPIVersion, "/v1") {
			spec["hostPort"] = fmt.Sprint(spec["host"], ":", spec["port"])
		} else {
			host, port, _ := strings.Cut(fmt.Sprint(spec["hostPort"]), ":")
			spec["host"], spec["port"] = host, port
		}
		_ = unstructured.SetNestedMap(o.Object, spec, "spec")
	}
	answer := map[string]any{"kind": "ConversionReview", "apiVersion": q.APIVersion, "response": map[string]any{
		"uid": q.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": q.Request.Objects,
	}}
	if bend != nil && bend(w, answer) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func converted(addr string, ca []byte) *unstructured.Unstructured {
	field := map[string]any{"type": "string"}
	version := func(name string, stored bool, fields ...string) any {
		props := map[string]any{"size": map[string]any{"type": "integer"}}
		for _, f := range fields {
			props[f] = field
		}
		return map[string]any{"name": name, "served": true, "storage": stored, "subresources": map[string]any{"status": map[string]any{}, "scale": map[string]any{"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.n"}},
			"additionalPrinterColumns": []any{map[string]any{"name": "First", "type": "string", "jsonPath": ".spec." + fields[0]}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"spec":   map[string]any{"type": "object", "properties": props},
				"status": map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer"}}},
			}}}}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "eps.conv.test"},
		"spec": map[string]any{
			"group": "conv.test", "scope": "Namespaced", "names": map[string]any{"plural": "eps", "singular": "ep", "kind": "Ep", "listKind": "EpList"},
			"versions": []any{version("v1", true, "hostPort"), version("v2", false, "host", "port")},
			"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{
				"conversionReviewVersions": []any{"v1"}, "clientConfig": map[string]any{"url": "https://" + addr + "/convert"},
			}},
		},
	}}
	b, _ := json.Marshal(ca)
	var text string
	_ = json.Unmarshal(b, &text)
	_ = unstructured.SetNestedField(u.Object, text, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	return u
}

// TestConversionWebhook converts custom resources with a webhook that works, hangs, exits, returns
// invalid responses and changes its certificate.
func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	s := harness.StartServer(t)
	client := dynamic.NewForConfigOrDie(s.Config())
	makeNamespace(t, s.Client(), "f")
	authority := harness.NewPKI(t)
	ca, err := os.ReadFile(authority.CA)
	if err != nil {
		t.Fatal(err)
	}
	hook := startConverter(t)
	hook.serve(authority.Serving("hook"))
	if _, err := client.Resource(definitionsGVR).Create(t.Context(), converted(hook.addr, ca), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eps := func(version string) dynamic.ResourceInterface {
		return client.Resource(schema.GroupVersionResource{Group: "conv.test", Version: version, Resource: "eps"}).Namespace("f")
	}
	older, newer := eps("v1"), eps("v2")
	create := func(r dynamic.ResourceInterface, version, name string, spec map[string]any) (*unstructured.Unstructured, error) {
		return r.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "conv.test/" + version, "kind": "Ep", "metadata": map[string]any{"name": name}, "spec": spec,
		}}, metav1.CreateOptions{})
	}
	spec := func(o *unstructured.Unstructured) string {
		b, _ := json.Marshal(o.Object["spec"])
		return string(b)
	}

	// Test every verb in the version that is not stored.
	w, err := newer.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	made, err := create(newer, "v2", "a", map[string]any{"host": "h", "port": "1"})
	if err != nil || spec(made) != `{"host":"h","port":"1"}` || made.GetAPIVersion() != "conv.test/v2" {
		t.Fatalf("create: got %v, %v", made, err)
	}
	if ev := <-w.ResultChan(); ev.Type != watch.Added || spec(ev.Object.(*unstructured.Unstructured)) != `{"host":"h","port":"1"}` {
		t.Errorf("watch: got %v", ev)
	}
	if o, err := older.Get(t.Context(), "a", metav1.GetOptions{}); err != nil || spec(o) != `{"hostPort":"h:1"}` {
		t.Errorf("stored version: got %v, %v", o, err)
	}
	patch := func(r dynamic.ResourceInterface, body string, sub ...string) (*unstructured.Unstructured, error) {
		return r.Patch(t.Context(), "a", types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
	}
	if o, err := patch(newer, `{"spec":{"port":"2"}}`); err != nil || spec(o) != `{"host":"h","port":"2"}` || o.GetGeneration() != 2 {
		t.Errorf("patch: got %v, %v", o, err)
	}
	if o, err := patch(newer, `{"status":{"n":3}}`, "status"); err != nil || fmt.Sprint(o.Object["status"]) != "map[n:3]" {
		t.Errorf("status: got %v, %v", o, err)
	}
	if o, err := patch(newer, `{"spec":{"replicas":4}}`, "scale"); err != nil || fmt.Sprint(o.Object["spec"]) != "map[replicas:4]" {
		t.Errorf("scale: got %v, %v", o, err)
	}
	if o, err := newer.Apply(t.Context(), "b", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "conv.test/v2", "kind": "Ep", "metadata": map[string]any{"name": "b"}, "spec": map[string]any{"host": "b", "port": "9"},
	}}, metav1.ApplyOptions{FieldManager: "me"}); err != nil || spec(o) != `{"host":"b","port":"9"}` {
		t.Errorf("apply: got %v, %v", o, err)
	}
	if table := harness.NewCLI(t, s).In("f").Run(t, "get", "eps.v2.conv.test"); !strings.Contains(table, "FIRST") || !strings.Contains(table, "a      h") {
		t.Errorf("table: got\n%s", table)
	}

	// A list is converted in one call, which concurrent requests share.
	for i := range 100 {
		if _, err := create(older, "v1", fmt.Sprint("many-", i), map[string]any{"hostPort": fmt.Sprint("h:", i)}); err != nil {
			t.Fatal(err)
		}
	}
	w.Stop()
	before := hook.count()
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if l, err := newer.List(t.Context(), metav1.ListOptions{}); err != nil || len(l.Items) != 102 {
				t.Errorf("list: %v", err)
			}
		})
	}
	group.Wait()
	if n := hook.count() - before; n > 3 {
		t.Errorf("got %d calls for ten lists", n)
	}

	// Invalid responses, timeouts and crashes fail only requests that need a conversion.
	fresh := func(name string) {
		t.Helper()
		if _, err := create(older, "v1", name, map[string]any{"hostPort": "h:1"}); err != nil {
			t.Fatalf("stored version while the webhook fails: got %v", err)
		}
	}
	rejected := func(name, want string) {
		t.Helper()
		_, err := newer.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("get: got %v, want %s", err, want)
		}
		if _, err := newer.List(t.Context(), metav1.ListOptions{}); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("list: got %v, want %s", err, want)
		}
		if _, err := create(newer, "v2", "never", map[string]any{"host": "h", "port": "1"}); err == nil {
			t.Error("create without conversion succeeded")
		}
		if l, err := older.List(t.Context(), metav1.ListOptions{}); err != nil || len(l.Items) < 103 {
			t.Errorf("list of the stored version: got %v", err)
		}
		if err := older.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete in the stored version: got %v", err)
		}
	}
	hook.set(func(_ http.ResponseWriter, answer map[string]any) bool {
		answer["response"].(map[string]any)["result"] = map[string]any{"status": "Failure", "message": "cannot convert"}
		return false
	}, nil)
	fresh("nonsense")
	rejected("nonsense", "conversion webhook for conv.test/v1, Kind=Ep failed: cannot convert")
	hook.set(func(w http.ResponseWriter, _ map[string]any) bool { panic(http.ErrAbortHandler) }, nil)
	fresh("cut")
	rejected("cut", "conversion webhook for conv.test/v1, Kind=Ep failed: Post ")
	hook.set(nil, nil)
	hook.kill()
	fresh("dead")
	rejected("dead", "connection refused")
	hook.serve(authority.Serving("hook"))

	// A hanging webhook delays a request at most until the request's timeout.
	hold := make(chan struct{})
	hook.set(nil, hold)
	fresh("slow")
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	if _, err := newer.Get(short, "slow", metav1.GetOptions{}); err == nil {
		t.Error("request with a hanging webhook succeeded")
	}
	cancel()
	if code := getWithTimeout(t, s, "/apis/conv.test/v2/namespaces/f/eps/slow?timeout=1s"); code != http.StatusGatewayTimeout {
		t.Errorf("timed-out request: got %d", code)
	}
	begin := time.Now()
	if code, err := readWithTimeout(t, s, "/apis/conv.test/v2/namespaces/f/eps?watch=1&timeoutSeconds=2"); code != http.StatusOK || err != nil || time.Since(begin) > 10*time.Second {
		t.Errorf("watch of 2 s: got %d after %v: %v", code, time.Since(begin), err)
	}
	close(hold)
	hook.set(nil, nil)
	if o, err := newer.Get(t.Context(), "slow", metav1.GetOptions{}); err != nil || spec(o) != `{"host":"h","port":"1"}` {
		t.Errorf("after recovery: got %v, %v", o, err)
	}

	// A certificate of another CA is rejected until the definition contains that CA.
	hook.kill()
	other := harness.NewPKI(t)
	hook.serve(other.Serving("hook"))
	fresh("rotated")
	if _, err := newer.Get(t.Context(), "rotated", metav1.GetOptions{}); !strings.Contains(fmt.Sprint(err), "certificate") {
		t.Errorf("certificate of another CA: got %v", err)
	}
	if ca, err = os.ReadFile(other.CA); err != nil {
		t.Fatal(err)
	}
	body, _ := json.Marshal(map[string]any{"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": map[string]any{"caBundle": ca}}}}})
	if _, err := client.Resource(definitionsGVR).Patch(t.Context(), "eps.conv.test", types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if o, err := newer.Get(t.Context(), "rotated", metav1.GetOptions{}); err != nil || spec(o) != `{"host":"h","port":"1"}` {
		t.Errorf("after the definition changed: got %v, %v", o, err)
	}

	// The definition is deleted with all its objects, whatever the webhook returns.
	hook.kill()
	if err := client.Resource(definitionsGVR).Delete(t.Context(), "eps.conv.test", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 20*time.Second, "removal of the definition", func() error {
		_, err := client.Resource(definitionsGVR).Get(t.Context(), "eps.conv.test", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still exists: %v", err)
	})
}

// getWithTimeout returns the code of a response.
func getWithTimeout(t *testing.T, s *harness.Server, path string) int {
	t.Helper()
	code, err := readWithTimeout(t, s, path)
	if err != nil {
		t.Error(err)
	}
	return code
}

// readWithTimeout returns the code of a response after it was read completely.
func readWithTimeout(t *testing.T, s *harness.Server, path string) (int, error) {
	t.Helper()
	cert, err := tls.X509KeyPair(s.Admin.Cert, s.Admin.Key)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}}, DisableKeepAlives: true,
	}}
	r, err := c.Get(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	return r.StatusCode, err
}
