package hostile

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// ownNamespace is the namespace that the attacker administers.
const ownNamespace = "b"

// tenants is a server with an attacker, mallory, the administrator of one namespace, and three
// probe clients: one with its own namespace, one that renews the lease of a leader election and an
// administrator.
type tenants struct {
	*target
	probes []*probeProcess
}

// startTenants starts a server with RBAC and further options.
func startTenants(t *testing.T, options ...harness.Option) *tenants {
	t.Helper()
	server := harness.StartServer(t,
		append([]harness.Option{harness.WithFlags("--feature-gates=CBORServingAndStorage=true")}, options...)...)
	started := &tenants{target: &target{
		url:          server.URL,
		addr:         strings.TrimPrefix(server.URL, "https://"),
		server:       server,
		serverErrors: map[string]int{},
		dialing:      make(chan struct{}, 8),
		attackerCert: tlsCertificate(t, server.PKI.Client("mallory")), admin: newClient(tlsCertificate(t, server.Admin)),
		long: envOr("BINNACLE_HOSTILE", "") == "long",
	}}
	for user, namespace := range map[string]string{"mallory": ownNamespace, "probe": "probe"} {
		started.mustCreate(t, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, namespace))
		started.mustCreate(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace+"/rolebindings", fmt.Sprintf(
			`{"metadata":{"name":"administrator"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%q}]}`, user))
	}
	started.mustCreate(t, "/api/v1/namespaces/probe/configmaps", `{"metadata":{"name":"mine"}}`)
	started.mustCreate(t, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"administrator"}}`)
	started.mustCreate(t, leaseCollection, leaseJSON(time.Now(), ""))
	for as, pair := range map[probeRole]harness.Pair{
		ordinaryClient: server.PKI.Client("probe"),
		leaderElection: server.PKI.Client("system:kube-controller-manager"),
		administrator:  server.Admin,
	} {
		started.probes = append(started.probes, newProbeProcess(t, started.url, pair, as, tenantProbeTimeout))
	}
	attackAtLowPriority(t)
	var err error
	if started.expectedErrors, err = started.sumMetric("apiserver_request_total", `code="500"`); err != nil {
		t.Fatal(err)
	}
	return started
}

// attackFor attacks for duration, or until the attack returns if duration is 0. It checks that no
// request of a probe client failed, that the server returned no 500 and that its resident memory
// grew by at most maxMemoryGrowth bytes.
func (x *tenants) attackFor(t *testing.T, duration time.Duration, attack func(ctx context.Context)) {
	t.Helper()
	for _, probing := range x.probes {
		if _, err := probing.collect(); err != nil {
			t.Errorf("before: %v", err)
		}
	}
	before := x.residentMemory(t)
	ctx, cancel := context.WithCancel(t.Context())
	if duration > 0 {
		ctx, cancel = context.WithTimeout(t.Context(), duration)
	}
	defer cancel()
	peak := make(chan float64)
	watched, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { peak <- x.watchMemory(watched, before) }()
	if duration > 0 {
		defer x.startProfile(t, path.Base(t.Name()), duration)()
	}
	start, requestsBefore := time.Now(), x.requestCount.Load()
	cpuBefore, _ := x.sumMetric("process_cpu_seconds_total", "")
	attack(ctx)
	cpuAfter, _ := x.sumMetric("process_cpu_seconds_total", "")
	t.Logf("%d requests of attackers, %.2f CPUs of the server", x.requestCount.Load()-requestsBefore,
		(cpuAfter-cpuBefore)/time.Since(start).Seconds())
	for _, probing := range x.probes {
		seen, err := probing.collect()
		if err != nil {
			t.Errorf("the attack affects a probe client: %v", err)
		}
		t.Logf("%-13s %v", probing.role, seen)
	}
	stop()
	grown := <-peak - before
	t.Logf("resident memory %.0f MiB before, at most %.0f MiB more during the attack", before/(1<<20), grown/(1<<20))
	if grown > maxMemoryGrowth {
		t.Errorf("resident memory grew by %.0f MiB, want at most %d MiB", grown/(1<<20), maxMemoryGrowth>>20)
	}
	if failed, err := x.sumMetric("apiserver_request_total", `code="500"`); err != nil ||
		failed > x.expectedErrors { // it decreases when series are removed
		t.Errorf("the server counts %v unexpected responses with code 500, %v, want 0", failed-x.expectedErrors, err)
	}
	if !x.server.Running() || strings.Contains(x.server.Log(), "panic") {
		t.Fatal("the server panicked")
	}
}

// maxMemoryGrowth is the growth of the resident memory that an attack may cause.
const maxMemoryGrowth = 512 << 20

// residentMemory returns the resident memory of the server in bytes.
func (x *tenants) residentMemory(t *testing.T) float64 {
	t.Helper()
	bytes, err := x.sumMetric("process_resident_memory_bytes", "")
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// watchMemory returns the largest resident memory until the context ends.
func (x *tenants) watchMemory(ctx context.Context, largest float64) float64 {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		bytes, err := x.sumMetric("process_resident_memory_bytes", "")
		if err == nil {
			largest = max(largest, bytes)
		}
		select {
		case <-ctx.Done():
			return largest
		case <-tick.C:
		}
	}
}

// response is a response that was read.
type response struct {
	code int
	body string
	err  error
}

// responseTimeout bounds the wait for a response to the attacker.
const responseTimeout = 20 * time.Second

// sendAndRead sends a request with a client and reads the response. header alternates names and
// values.
func (x *target) sendAndRead(client *http.Client, method, path, media, body string, header ...string) response {
	ctx, cancel := context.WithTimeout(context.Background(), responseTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, x.url+path, strings.NewReader(body))
	if err != nil {
		return response{err: err}
	}
	req.Header.Set("Content-Type", media)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return response{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, string(text), err}
}

// requireCode returns an error unless the response has one of the codes.
func (r response) requireCode(codes ...int) error {
	for _, c := range codes {
		if r.err == nil && r.code == c {
			return nil
		}
	}
	if r.err != nil {
		return fmt.Errorf("want %v: %w", codes, r.err)
	}
	return fmt.Errorf("got %d: %.300s, want %v", r.code, r.body, codes)
}

// requireRejection returns an error unless the response is 4xx and contains text.
func (r response) requireRejection(text string) error {
	switch {
	case r.err != nil:
		return r.err
	case r.code/100 != 4 || !strings.Contains(r.body, text):
		return fmt.Errorf("got %d: %.300s, want 4xx with %q", r.code, r.body, text)
	}
	return nil
}

// openRequest opens a connection and sends the head of a request with a declared body length. If
// impersonated is not empty, the request impersonates that user.
func (x *target) openRequest(ctx context.Context, cert tls.Certificate, method, path, impersonated string,
	contentLength int) (*tls.Conn, error) {
	dialer := tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true,
		Certificates:       []tls.Certificate{cert},
		NextProtos:         []string{"http/1.1"},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", x.addr)
	if err != nil {
		return nil, err
	}
	impersonate := ""
	if impersonated != "" {
		impersonate = "Impersonate-User: " + impersonated + "\r\n"
	}
	_, err = fmt.Fprintf(conn,
		"%s %s HTTP/1.1\r\nHost: a\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path,
		impersonate, contentLength)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn.(*tls.Conn), nil
}
