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

// TestClients: what an extension server serves is used like everything else.
func TestClients(t *testing.T) {
	t.Parallel()
	s := start(t, 1)
	k := harness.NewCLI(t, s.servers[0])
	k.RunWith(t, `{"apiVersion":"ext.example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"color":"red"}}`, "create", "--validate=strict", "-f", "-")
	if out := k.Run(t, "get", "wd", "a", "-o", `jsonpath={.spec.color} {.metadata.annotations.made-by}`); out != "red admin" {
		t.Errorf("get: %q", out)
	}
	if out := k.Run(t, "explain", "widgets.spec"); !strings.Contains(out, "what it shall be") || !strings.Contains(out, "the color that it shows") {
		t.Errorf("explain: %s", out)
	}
	if out := k.Run(t, "api-resources", "--api-group=ext.example.com", "-o", "name"); !strings.Contains(out, "widgets.ext.example.com") {
		t.Errorf("api-resources: %s", out)
	}
	if out := s.must("GET", "/openapi/v2", ""); !strings.Contains(out, "com.example.ext.v1.Widget") {
		t.Error("the v2 document does not tell of widgets")
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := k.Command(ctx, "", "get", "widgets", "--watch-only", "-o", "name")
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
	harness.Eventually(t, 20*time.Second, "a watch tells of a new one", func() error {
		n++ // kubectl does not tell when it has begun
		s.must("POST", widgets, fmt.Sprintf(`{"apiVersion":"ext.example.com/v1","kind":"Widget","metadata":{"name":"w%d"}}`, n))
		select {
		case line := <-seen:
			if !strings.HasPrefix(line, "widget.ext.example.com/w") {
				return fmt.Errorf("it tells %q", line)
			}
			return nil
		case <-time.After(100 * time.Millisecond):
			return fmt.Errorf("it is silent")
		}
	})
	cancel()
	_ = watch.Wait()

	s.must("POST", "/api/v1/nodes", `{"metadata":{"name":"n1"},"status":{"allocatable":{"cpu":"1","memory":"128Mi"}}}`)
	for kind, want := range map[string]string{"nodes": "n1 250m 25% 64Mi 50%", "pods": "p1 250m 64Mi"} {
		harness.Eventually(t, 20*time.Second, "kubectl top "+kind, func() error {
			r := k.Try(t, "", "top", kind, "--no-headers")
			if got := strings.Join(strings.Fields(r.Stdout), " "); got != want {
				return fmt.Errorf("%q %s", got, r.Stderr)
			}
			return nil
		})
	}

	bob := harness.CLIOf(t, s.servers[0].Kubeconfig(s.pki.Client("bob")))
	if r := bob.Try(t, "", "get", "widgets"); !strings.Contains(r.Stderr, `User "bob" cannot list resource "widgets" in API group "ext.example.com"`) {
		t.Errorf("bob: %s%s", r.Stdout, r.Stderr)
	}
	upgrade(t, s)
	defined(t, s)
}

// defined defines what the extension server answers for.
func defined(t *testing.T, s *suite) {
	t.Helper()
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	s.must("POST", definitions, `{"metadata":{"name":"widgets.ext.example.com"},"spec":{"group":"ext.example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},
		{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
	harness.Eventually(t, 20*time.Second, "the other version is served", func() error { return s.ok(0, "/apis/ext.example.com/v2/widgets") })
	if out := s.must("GET", widgets+"/a", ""); !strings.Contains(out, `"made-by":"admin"`) {
		t.Errorf("a definition hides what the extension server has: %s", out)
	}
	for path, want := range map[string]string{"/apis/ext.example.com/v1": `"wd"`, "/openapi/v3/apis/ext.example.com/v1": "the color that it shows"} {
		if out := s.must("GET", path, ""); !strings.Contains(out, want) {
			t.Errorf("%s tells of what is defined: %.300s", path, out)
		}
	}
	if out := s.must("GET", "/apis/ext.example.com", ""); strings.Count(out, `"groupVersion":"ext.example.com/v1"`) != 1 {
		t.Errorf("versions of the group: %s", out)
	}
	s.must("DELETE", apiServices+"/v1.ext.example.com", "")
	harness.Eventually(t, 20*time.Second, "the definition holds", func() error {
		if code, out, err := s.send(t.Context(), 0, "GET", widgets+"/a", ""); code != http.StatusNotFound {
			return fmt.Errorf("%d %s %v", code, out, err)
		}
		_, out, err := s.send(t.Context(), 0, "GET", "/apis/ext.example.com/v1", "")
		if strings.Contains(out, `"wd"`) || !strings.Contains(out, `"widgets"`) {
			return fmt.Errorf("it is described as %s %v", out, err)
		}
		return nil
	})
	s.must("POST", widgets, `{"apiVersion":"ext.example.com/v1","kind":"Widget","metadata":{"name":"a"}}`)
}

// upgrade talks to the extension server over a connection that it took over.
func upgrade(t *testing.T, s *suite) {
	t.Helper()
	pair, err := tls.X509KeyPair(s.servers[0].Admin.Cert, s.servers[0].Admin.Key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.servers[0].URL, "https://"), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s/a/echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", widgets)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := r.ReadString('\n'); line != "hello\n" {
		t.Errorf("%q %v", line, err)
	}
}

// bystander asks for what the extension server has nothing to do with, and notes what
// was wrong.
type bystander struct {
	mu    sync.Mutex
	asked int
	wrong []error
	waits []time.Duration // since they were told
}

// tell logs how long answers were waited for since the last time.
func (b *bystander) tell(t *testing.T, when string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.waits)
	if n := len(b.waits); n > 0 {
		t.Logf("others waited %s, 99 %% %s (%d requests), %s", b.waits[n/2], b.waits[n*99/100], n, when)
	}
	b.waits = nil
}

func (b *bystander) run(ctx context.Context, s *suite) {
	for n := 0; ctx.Err() == nil; n++ {
		path := []string{"/api/v1/namespaces/default/services/ext", "/api/v1/namespaces?limit=2", "/apis", "/openapi/v3/apis/apps/v1"}[n%4]
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		sent := time.Now()
		code, body, err := s.send(asking, 0, "GET", path, "")
		cancel()
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%s: %d %.200s", path, code, body)
		}
		b.mu.Lock()
		b.asked++
		b.waits = append(b.waits, time.Since(sent))
		if err != nil {
			b.wrong = append(b.wrong, err)
		}
		b.mu.Unlock()
	}
}

// TestFaults: an extension server that is killed, hangs, is cut off, or has a
// certificate that is not its own hurts nobody else, and is there again when it is well.
func TestFaults(t *testing.T) {
	t.Parallel()
	s := start(t, 1, "--max-requests-inflight=40", "--max-mutating-requests-inflight=20")
	before := goroutines(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	b, others, crowd := &bystander{}, s.as("bystander"), s.as("crowd")
	harness.Eventually(t, 20*time.Second, "allowed", func() error { return errors.Join(others.ok(0, "/api/v1/namespaces"), crowd.ok(0, widgets)) })
	for range 2 {
		running.Go(func() { b.run(ctx, others) })
	}
	for range 80 { // more than there are seats
		running.Go(func() {
			for ctx.Err() == nil {
				if code, _, err := crowd.send(ctx, 0, "GET", widgets, ""); err != nil || code != http.StatusOK {
					select { // as well-behaved clients do
					case <-time.After(time.Second):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	good := s.cert
	other := harness.NewPKI(t).ServingFor("extension", "ext.default.svc")
	copyFile := func(from, to string) {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	renewed := s.pki.ServingFor("renewed", "ext.default.svc")
	for _, fault := range []struct {
		what       string
		begin, end func()
	}{
		{"killed", s.extension.Kill, func() { s.extension.Start(s.args...) }},
		{"hanging", s.extension.Pause, s.extension.Resume},
		{"cut off", func() { s.proxy.Set(harness.Cut) }, func() { s.proxy.Set(harness.Pass) }},
		{"behind a wall", func() { s.proxy.Set(harness.Stall) }, func() { s.proxy.Set(harness.Pass); s.proxy.Reset() }},
		{"somebody else", func() {
			copyFile(other.CertFile, good.CertFile)
			copyFile(other.KeyFile, good.KeyFile)
			s.proxy.Reset()
		}, func() {
			copyFile(renewed.CertFile, good.CertFile)
			copyFile(renewed.KeyFile, good.KeyFile)
			s.proxy.Reset()
		}},
	} {
		b.tell(t, "while all was well")
		fault.begin()
		harness.Eventually(t, 60*time.Second, fault.what, func() error {
			if err := s.ok(0, widgets); err == nil {
				return fmt.Errorf("it answers still")
			}
			return nil
		})
		b.tell(t, "until the server was seen to be "+fault.what)
		fault.end()
		harness.Eventually(t, 90*time.Second, "well after it was "+fault.what, func() error { return s.ok(0, widgets) })
	}
	cancel()
	running.Wait()
	if b.asked < 100 || len(b.wrong) > 0 {
		t.Errorf("of %d others' requests %d went wrong: %.2000v", b.asked, len(b.wrong), b.wrong)
	}
	for _, c := range []*suite{s, others, crowd} {
		c.client.CloseIdleConnections()
	}
	harness.Eventually(t, 60*time.Second, "nothing is left", func() error {
		if now := goroutines(t, s); now > before+30 {
			return fmt.Errorf("%d goroutines, %d before", now, before)
		}
		return nil
	})
}

func goroutines(t *testing.T, s *suite) (n int) {
	t.Helper()
	for _, line := range strings.Split(s.must("GET", "/metrics", ""), "\n") {
		if rest, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	if n == 0 {
		t.Fatal("nothing tells how many goroutines there are")
	}
	return n
}

// TestReplicas: all find out whether a server is there, one writes it.
func TestReplicas(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	since := ""
	events := func() (all []string) {
		_, body, err := s.send(t.Context(), 0, "GET", apiServices+"?watch=1&timeoutSeconds=1&resourceVersion="+since+"&fieldSelector=metadata.name%3Dv1.ext.example.com", "")
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
			told := e.Type
			for _, c := range e.Object.Status.Conditions {
				told += " " + c.Status
			}
			all = append(all, told)
		}
		return all
	}
	all := func(status string) {
		t.Helper()
		for i := range s.servers {
			harness.Eventually(t, 60*time.Second, "condition "+status, func() error {
				if got := s.available(i); got != status {
					return fmt.Errorf("it is %q", got)
				}
				return nil
			})
		}
	}
	all("True")
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(s.must("GET", apiServices+"/v1.ext.example.com", "")), &o); err != nil {
		t.Fatal(err)
	}
	since = o.Metadata.ResourceVersion
	s.extension.Kill()
	s.look()
	all("False")
	for i := range s.servers { // and act on it
		harness.Eventually(t, 60*time.Second, "refused", func() error {
			code, body, err := s.send(t.Context(), i, "GET", widgets, "")
			if err != nil || code != 503 || body != "service unavailable\n" {
				return fmt.Errorf("%d %s %v", code, body, err)
			}
			return nil
		})
	}
	s.extension.Start(s.args...)
	s.look()
	all("True")
	for i := range s.servers {
		harness.Eventually(t, 60*time.Second, "answers", func() error { return s.ok(i, widgets) })
	}
	if got := strings.Join(events(), ", "); got != "MODIFIED False, MODIFIED True" {
		t.Errorf("told: %s", got)
	}
}
