package hostile

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	s := harness.StartServer(t, append([]harness.Option{harness.WithFlags("--feature-gates=CBORServingAndStorage=true")}, options...)...)
	x := &tenants{target: &target{
		url: s.URL, addr: strings.TrimPrefix(s.URL, "https://"), server: s, failed: map[string]int{}, dialing: make(chan struct{}, 8),
		mallory: certificate(t, s.PKI.Client("mallory")), admin: client(certificate(t, s.Admin)),
		long: envOr("BINNACLE_HOSTILE", "") == "long",
	}}
	for user, namespace := range map[string]string{"mallory": ownNamespace, "probe": "probe"} {
		x.create(t, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, namespace))
		x.create(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace+"/rolebindings", fmt.Sprintf(
			`{"metadata":{"name":"administrator"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%q}]}`, user))
	}
	x.create(t, "/api/v1/namespaces/probe/configmaps", `{"metadata":{"name":"mine"}}`)
	x.create(t, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"administrator"}}`)
	x.create(t, leaseCollection, lease(time.Now(), ""))
	for as, p := range map[role]harness.Pair{
		ordinary: s.PKI.Client("probe"), leader: s.PKI.Client("system:kube-controller-manager"), administrator: s.Admin,
	} {
		x.probes = append(x.probes, newProbeProcess(t, x.url, p, as, tenantProbeTimeout))
	}
	var err error
	if x.counted, err = x.metric("apiserver_request_total", `code="500"`); err != nil {
		t.Fatal(err)
	}
	return x
}

// during attacks for d, or until the attack returns if d is 0. It checks that no request of a probe
// client failed, that the server answered nothing with 500 and that its resident memory grew by at
// most spareResident bytes.
func (x *tenants) during(t *testing.T, d time.Duration, attack func(ctx context.Context)) {
	t.Helper()
	for _, w := range x.probes {
		if _, err := w.collect(); err != nil {
			t.Errorf("before: %v", err)
		}
	}
	before := x.resident(t)
	ctx, cancel := context.WithCancel(t.Context())
	if d > 0 {
		ctx, cancel = context.WithTimeout(t.Context(), d)
	}
	defer cancel()
	peak := make(chan float64)
	watched, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { peak <- x.watchMemory(watched, before) }()
	attack(ctx)
	for _, w := range x.probes {
		seen, err := w.collect()
		if err != nil {
			t.Errorf("the attack affects a probe client: %v", err)
		}
		t.Logf("%-13s %v", w.role, seen)
	}
	stop()
	grown := <-peak - before
	t.Logf("resident memory %.0f MiB before, at most %.0f MiB more during the attack", before/(1<<20), grown/(1<<20))
	if grown > spareResident {
		t.Errorf("resident memory grew by %.0f MiB, want at most 512 MiB", grown/(1<<20))
	}
	if failed, err := x.metric("apiserver_request_total", `code="500"`); err != nil || failed > x.counted { // it decreases when series are removed
		t.Errorf("the server counts %v responses with code 500, %v", failed-x.counted, err)
	}
	if !x.server.Running() || strings.Contains(x.server.Log(), "panic") {
		t.Fatal("the server panicked")
	}
}

// spareResident is the growth of the resident memory that an attack may cause.
const spareResident = 512 << 20

func (x *tenants) resident(t *testing.T) float64 {
	t.Helper()
	n, err := x.metric("process_resident_memory_bytes", "")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// watchMemory returns the largest resident memory until the context ends.
func (x *tenants) watchMemory(ctx context.Context, most float64) float64 {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := x.metric("process_resident_memory_bytes", "")
		if err == nil {
			most = max(most, n)
		}
		select {
		case <-ctx.Done():
			return most
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

// send sends a request with a client and reads the response. header alternates names and values.
func (x *target) send(c *http.Client, method, path, media, body string, header ...string) response {
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
	resp, err := c.Do(req)
	if err != nil {
		return response{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, string(text), err}
}

// is returns an error unless the response has one of the codes.
func (r response) is(codes ...int) error {
	for _, c := range codes {
		if r.err == nil && r.code == c {
			return nil
		}
	}
	if r.err != nil {
		return fmt.Errorf("want %v: %w", codes, r.err)
	}
	return fmt.Errorf("want %v, got %d: %.300s", codes, r.code, r.body)
}

// rejected returns an error unless the response is 4xx and contains text.
func (r response) rejected(text string) error {
	switch {
	case r.err != nil:
		return r.err
	case r.code/100 != 4 || !strings.Contains(r.body, text):
		return fmt.Errorf("want 4xx with %q, got %d: %.300s", text, r.code, r.body)
	}
	return nil
}

// openRequest opens a connection and sends the head of a request with a declared body length. If
// name is not empty, the request impersonates it.
func (x *target) openRequest(ctx context.Context, as tls.Certificate, method, path, name string, declared int) (*tls.Conn, error) {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{as}, NextProtos: []string{"http/1.1"}}}
	conn, err := d.DialContext(ctx, "tcp", x.addr)
	if err != nil {
		return nil, err
	}
	impersonate := ""
	if name != "" {
		impersonate = "Impersonate-User: " + name + "\r\n"
	}
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: a\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path, impersonate, declared)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn.(*tls.Conn), nil
}
