package aggregation

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// TestClientsUseExtensionServer checks that kubectl and watches use the resources of an extension
// server in the same way as built-in ones.
func TestClientsUseExtensionServer(t *testing.T) {
	t.Parallel()
	suite := start(t, 1)
	kubectl := harness.NewCLI(t, suite.servers[0])
	kubectl.RunWith(t, `{"apiVersion":"ext.example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"color":"red"}}`,
		"create", "--validate=strict", "-f", "-")
	if out := kubectl.Run(t, "get", "wd", "a", "-o", `jsonpath={.spec.color} {.metadata.annotations.made-by}`); out != "red admin" {
		t.Errorf("get: %q, want \"red admin\"", out)
	}
	if out := kubectl.Run(t, "explain", "widgets.spec"); !strings.Contains(out, "desired state") || !strings.Contains(out,
		"displayed color") {
		t.Errorf("explain: got %s, want the descriptions: desired state, displayed color", out)
	}
	if out := kubectl.Run(t, "api-resources", "--api-group=ext.example.com", "-o", "name"); !strings.Contains(out,
		"widgets.ext.example.com") {
		t.Errorf("api-resources: got %s, want widgets.ext.example.com", out)
	}
	if out := suite.mustRequest("GET", "/openapi/v2", ""); !strings.Contains(out, "com.example.ext.v1.Widget") {
		t.Error("/openapi/v2: got no widgets, want their schema")
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := kubectl.Command(ctx, "", "get", "widgets", "--watch-only", "-o", "name")
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 100)
	go func() {
		defer close(seen)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			seen <- lines.Text()
		}
	}()
	n := 0
	harness.Eventually(t, 20*time.Second, "an event for a new widget", func() error {
		n++ // kubectl does not report when its watch has started
		suite.mustRequest("POST", widgets,
			fmt.Sprintf(`{"apiVersion":"ext.example.com/v1","kind":"Widget","metadata":{"name":"w%d"}}`, n))
		select {
		case line := <-seen:
			if !strings.HasPrefix(line, "widget.ext.example.com/w") {
				return fmt.Errorf("got %q", line)
			}
			return nil
		case <-time.After(100 * time.Millisecond):
			return errors.New("got no event within 100 ms")
		}
	})
	cancel()
	_ = watch.Wait()

	suite.mustRequest("POST", "/api/v1/nodes", `{"metadata":{"name":"n1"},"status":{"allocatable":{"cpu":"1","memory":"128Mi"}}}`)
	for kind, want := range map[string]string{"nodes": "n1 250m 25% 64Mi 50%", "pods": "p1 250m 64Mi"} {
		harness.Eventually(t, 20*time.Second, "kubectl top "+kind, func() error {
			r := kubectl.Execute(t, "", "top", kind, "--no-headers")
			if got := strings.Join(strings.Fields(r.Stdout), " "); got != want {
				return fmt.Errorf("%q %s", got, r.Stderr)
			}
			return nil
		})
	}

	bob := harness.CLIOf(t, suite.servers[0].Kubeconfig(suite.pki.Client("bob")))
	if r := bob.Execute(t, "", "get", "widgets"); !strings.Contains(r.Stderr,
		`User "bob" cannot list resource "widgets" in API group "ext.example.com"`) {
		t.Errorf("get widgets as bob: got %s%s, want Forbidden", r.Stdout, r.Stderr)
	}
	checkUpgradedConnection(t, suite)
	checkPrecedenceOverDefinition(t, suite)
}

// checkPrecedenceOverDefinition creates a definition for the resource of the extension server. The
// extension server takes precedence until its APIService is deleted.
func checkPrecedenceOverDefinition(t *testing.T, env *suite) {
	t.Helper()
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	env.mustRequest("POST", definitions,
		`{"metadata":{"name":"widgets.ext.example.com"},"spec":{"group":"ext.example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},
		{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
	harness.Eventually(t, 20*time.Second, "the other version to be served", func() error {
		return env.checkOK(0, "/apis/ext.example.com/v2/widgets")
	})
	if out := env.mustRequest("GET", widgets+"/a", ""); !strings.Contains(out, `"made-by":"admin"`) {
		t.Errorf("get of a widget: got %s, want the object of the extension server", out)
	}
	for path, want := range map[string]string{
		"/apis/ext.example.com/v1":            `"wd"`,
		"/openapi/v3/apis/ext.example.com/v1": "displayed color",
	} {
		if out := env.mustRequest("GET", path, ""); !strings.Contains(out, want) {
			t.Errorf("%s describes the definition, want the extension server's description: %.300s", path, out)
		}
	}
	if out := env.mustRequest("GET", "/apis/ext.example.com", ""); strings.Count(out, `"groupVersion":"ext.example.com/v1"`) != 1 {
		t.Errorf("versions of the group: got %s, want v1 once", out)
	}
	env.mustRequest("DELETE", apiServices+"/v1.ext.example.com", "")
	harness.Eventually(t, 20*time.Second, "the definition to take effect", func() error {
		if code, out, err := env.sendRequest(t.Context(), 0, "GET", widgets+"/a", ""); code != http.StatusNotFound {
			return fmt.Errorf("%d %s %v", code, out, err)
		}
		_, out, err := env.sendRequest(t.Context(), 0, "GET", "/apis/ext.example.com/v1", "")
		if strings.Contains(out, `"wd"`) || !strings.Contains(out, `"widgets"`) {
			return fmt.Errorf("described as %s %v", out, err)
		}
		return nil
	})
	env.mustRequest("POST", widgets, `{"apiVersion":"ext.example.com/v1","kind":"Widget","metadata":{"name":"a"}}`)
}

// checkUpgradedConnection checks that data passes in both directions over an upgraded connection to
// the extension server.
func checkUpgradedConnection(t *testing.T, env *suite) {
	t.Helper()
	pair, err := tls.X509KeyPair(env.servers[0].Admin.Cert, env.servers[0].Admin.Key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(env.servers[0].URL, "https://"), &tls.Config{
		InsecureSkipVerify: true,
		Certificates:       []tls.Certificate{pair},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s/a/echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", widgets)
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v, want status %d", resp, err, http.StatusSwitchingProtocols)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := reader.ReadString('\n'); line != "hello\n" {
		t.Errorf("got %q %v, want \"hello\\n\"", line, err)
	}
}

// probeClient sends requests that do not involve the extension server and records failures and
// latencies.
type probeClient struct {
	mu        sync.Mutex
	requests  int
	errors    []error
	latencies []time.Duration // since the last report
}

// report logs the latencies since the last call.
func (b *probeClient) report(t *testing.T, when string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.latencies)
	if n := len(b.latencies); n > 0 {
		t.Logf("probe latency p50 %s, p99 %s (%d requests), %s", b.latencies[n/2], b.latencies[n*99/100], n, when)
	}
	b.latencies = nil
}

// sendRequests sends requests in a loop until ctx ends.
func (b *probeClient) sendRequests(ctx context.Context, env *suite) {
	for n := 0; ctx.Err() == nil; n++ {
		path := []string{"/api/v1/namespaces/default/services/ext", "/api/v1/namespaces?limit=2", "/apis",
			"/openapi/v3/apis/apps/v1"}[n%4]
		requestCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		started := time.Now()
		code, body, err := env.sendRequest(requestCtx, 0, "GET", path, "")
		cancel()
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%s: %d %.200s", path, code, body)
		}
		b.mu.Lock()
		b.requests++
		b.latencies = append(b.latencies, time.Since(started))
		if err != nil {
			b.errors = append(b.errors, err)
		}
		b.mu.Unlock()
	}
}

// TestExtensionFaultsDoNotAffectOthers kills, pauses and disconnects an extension server and
// replaces its certificate. Other requests must succeed meanwhile, and the extension server must be
// available after each repair.
func TestExtensionFaultsDoNotAffectOthers(t *testing.T) {
	t.Parallel()
	env := start(t, 1, "--max-requests-inflight=40", "--max-mutating-requests-inflight=20")
	before := countGoroutines(t, env)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	probe, probeUser, widgetClient := &probeClient{}, env.withUser("probe"), env.withUser("widget-client")
	harness.Eventually(t, 20*time.Second, "allowed", func() error {
		return errors.Join(probeUser.checkOK(0, "/api/v1/namespaces"), widgetClient.checkOK(0, widgets))
	})
	for range 2 {
		running.Go(func() { probe.sendRequests(ctx, probeUser) })
	}
	for range 80 { // more than there are seats
		running.Go(func() {
			for ctx.Err() == nil {
				if code, _, err := widgetClient.sendRequest(ctx, 0, "GET", widgets, ""); err != nil || code != http.StatusOK {
					select { // well-behaved clients back off
					case <-time.After(time.Second):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	currentCert := env.extensionCert
	untrustedCert := harness.NewPKI(t).ServingFor("extension", "ext.default.svc")
	copyFile := func(from, to string) {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	renewed := env.pki.ServingFor("renewed", "ext.default.svc")
	for _, fault := range []struct {
		name          string
		begin, repair func()
	}{
		{name: "killed", begin: env.extension.Kill, repair: func() { env.extension.Start(env.extensionFlags...) }},
		{name: "hanging", begin: env.extension.Pause, repair: env.extension.Resume},
		{name: "disconnected", begin: func() { env.proxy.Set(harness.Cut) }, repair: func() { env.proxy.Set(harness.Pass) }},
		{
			name:   "unresponsive network",
			begin:  func() { env.proxy.Set(harness.Stall) },
			repair: func() { env.proxy.Set(harness.Pass); env.proxy.Reset() },
		},
		{name: "wrong certificate", begin: func() {
			copyFile(untrustedCert.CertFile, currentCert.CertFile)
			copyFile(untrustedCert.KeyFile, currentCert.KeyFile)
			env.proxy.Reset()
		}, repair: func() {
			copyFile(renewed.CertFile, currentCert.CertFile)
			copyFile(renewed.KeyFile, currentCert.KeyFile)
			env.proxy.Reset()
		}},
	} {
		probe.report(t, "without a fault")
		fault.begin()
		harness.Eventually(t, 60*time.Second, fault.name, func() error {
			if err := env.checkOK(0, widgets); err == nil {
				return fmt.Errorf("still responds")
			}
			return nil
		})
		probe.report(t, "until the effect of: "+fault.name)
		fault.repair()
		harness.Eventually(t, 90*time.Second, "recovery from: "+fault.name, func() error { return env.checkOK(0, widgets) })
	}
	cancel()
	running.Wait()
	if probe.requests < 100 || len(probe.errors) > 0 {
		t.Errorf("got %d probe requests, %d of them failed, want at least 100 and no failure: %.2000v",
			probe.requests, len(probe.errors), probe.errors)
	}
	for _, c := range []*suite{env, probeUser, widgetClient} {
		c.client.CloseIdleConnections()
	}
	harness.Eventually(t, 60*time.Second, "the goroutines to end", func() error {
		if now := countGoroutines(t, env); now > before+30 {
			return fmt.Errorf("got %d goroutines, had %d before", now, before)
		}
		return nil
	})
}

// countGoroutines returns the number of goroutines of the first replica.
func countGoroutines(t *testing.T, env *suite) (count int) {
	t.Helper()
	for _, line := range strings.Split(env.mustRequest("GET", "/metrics", ""), "\n") {
		if value, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			_, _ = fmt.Sscan(value, &count)
		}
	}
	if count == 0 {
		t.Fatal("no metric go_goroutines")
	}
	return count
}

// TestReplicasAgreeOnAvailability checks that all replicas detect whether the extension server is
// available and that only one writes the condition.
func TestReplicasAgreeOnAvailability(t *testing.T) {
	t.Parallel()
	suite := start(t, 3)
	startRevision := ""
	events := func() (received []string) {
		_, body, err := suite.sendRequest(t.Context(), 0, "GET",
			apiServices+"?watch=1&timeoutSeconds=1&resourceVersion="+startRevision+
				"&fieldSelector=metadata.name%3Dv1.ext.example.com", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(body), "\n") {
			var e struct {
				Type   string
				Object struct {
					Status struct{ Conditions []struct{ Status string } }
				}
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v: %.300s", err, body)
			}
			event := e.Type
			for _, c := range e.Object.Status.Conditions {
				event += " " + c.Status
			}
			received = append(received, event)
		}
		return received
	}
	requireConditionEverywhere := func(status string) {
		t.Helper()
		for i := range suite.servers {
			harness.Eventually(t, 60*time.Second, "condition "+status, func() error {
				if got := suite.availableCondition(i); got != status {
					return fmt.Errorf("got %q", got)
				}
				return nil
			})
		}
	}
	requireConditionEverywhere("True")
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(suite.mustRequest("GET", apiServices+"/v1.ext.example.com", "")), &o); err != nil {
		t.Fatal(err)
	}
	startRevision = o.Metadata.ResourceVersion
	suite.extension.Kill()
	suite.probeAvailability()
	requireConditionEverywhere("False")
	for i := range suite.servers { // and reject requests
		harness.Eventually(t, 60*time.Second, "rejection", func() error {
			code, body, err := suite.sendRequest(t.Context(), i, "GET", widgets, "")
			if err != nil || code != 503 || body != "service unavailable\n" {
				return fmt.Errorf("%d %s %v", code, body, err)
			}
			return nil
		})
	}
	suite.extension.Start(suite.extensionFlags...)
	suite.probeAvailability()
	requireConditionEverywhere("True")
	for i := range suite.servers {
		harness.Eventually(t, 60*time.Second, "a response", func() error { return suite.checkOK(i, widgets) })
	}
	if got := strings.Join(events(), ", "); got != "MODIFIED False, MODIFIED True" {
		t.Errorf("got events %s, want \"MODIFIED False, MODIFIED True\"", got)
	}
}
