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

// tenants is a server with an attacker, mallory, with the rights of an administrator of one namespace, and
// bystanders: one with a namespace of its own, a leader election and an administrator.
type tenants struct {
	*target
	bystanders []*witness
}

// startTenants starts a server that decides by roles, with further options.
func startTenants(t *testing.T, options ...harness.Option) *tenants {
	t.Helper()
	s := harness.StartServer(t, append([]harness.Option{harness.WithFlags("--feature-gates=CBORServingAndStorage=true")}, options...)...)
	x := &tenants{target: &target{
		url: s.URL, addr: strings.TrimPrefix(s.URL, "https://"), server: s, failed: map[string]int{}, dialing: make(chan struct{}, 8),
		mallory: certificate(t, s.PKI.Client("mallory")), admin: client(certificate(t, s.Admin)),
		long: environment("BINNACLE_HOSTILE", "") == "long",
	}}
	for user, namespace := range map[string]string{"mallory": ownNamespace, "bystander": "bystander"} {
		x.create(t, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, namespace))
		x.create(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace+"/rolebindings", fmt.Sprintf(
			`{"metadata":{"name":"administrator"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%q}]}`, user))
	}
	x.create(t, "/api/v1/namespaces/bystander/configmaps", `{"metadata":{"name":"mine"}}`)
	x.create(t, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"administrator"}}`)
	x.create(t, leaseCollection, lease(time.Now(), ""))
	for as, p := range map[role]harness.Pair{
		ordinary: s.PKI.Client("bystander"), leader: s.PKI.Client("system:kube-controller-manager"), administrator: s.Admin,
	} {
		x.bystanders = append(x.bystanders, newWitness(t, x.url, p, as, besideTenant))
	}
	var err error
	if x.counted, err = x.metric("apiserver_request_total", `code="500"`); err != nil {
		t.Fatal(err)
	}
	return x
}

// during attacks for d, or until the attack returns if d is 0, and checks that no request of
// a bystander failed, that the server answered nothing with 500 and that its resident memory
// grew by at most spare bytes.
func (x *tenants) during(t *testing.T, d time.Duration, attack func(ctx context.Context)) {
	t.Helper()
	for _, w := range x.bystanders {
		if _, err := w.take(); err != nil {
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
	for _, w := range x.bystanders {
		seen, err := w.take()
		if err != nil {
			t.Errorf("the attack affects a bystander: %v", err)
		}
		t.Logf("%-13s %v", w.role, seen)
	}
	stop()
	grown := <-peak - before
	t.Logf("%.0f MiB resident before, %.0f MiB more at most", before/(1<<20), grown/(1<<20))
	if grown > spareResident {
		t.Errorf("the resident memory grew by %.0f MiB", grown/(1<<20))
	}
	if failed, err := x.metric("apiserver_request_total", `code="500"`); err != nil || failed > x.counted { // it goes down with series that are removed
		t.Errorf("the server counts %v answers of 500, %v", failed-x.counted, err)
	}
	if !x.server.Running() || strings.Contains(x.server.Log(), "panic") {
		t.Fatal("the server panicked")
	}
}

// spareResident is what an attack may add to the resident memory.
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

// reply is an answer that was read.
type reply struct {
	code int
	body string
	err  error
}

// answering bounds how long the server may take for an answer to the attacker.
const answering = 20 * time.Second

// send sends a request with a client and reads the answer. header has names and values.
func (x *target) send(c *http.Client, method, path, media, body string, header ...string) reply {
	ctx, cancel := context.WithTimeout(context.Background(), answering)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, x.url+path, strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	req.Header.Set("Content-Type", media)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, string(text), err}
}

// is returns an error unless the answer has one of some codes.
func (r reply) is(codes ...int) error {
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

// rejected returns an error unless the answer is 4xx and contains a text.
func (r reply) rejected(text string) error {
	switch {
	case r.err != nil:
		return r.err
	case r.code/100 != 4 || !strings.Contains(r.body, text):
		return fmt.Errorf("want 4xx with %q, got %d: %.300s", text, r.code, r.body)
	}
	return nil
}

// open opens a connection of the attacker and sends the head of a request with a declared
// body, under an impersonated name if there is one.
func (x *target) open(ctx context.Context, as tls.Certificate, method, path, name string, declared int) (*tls.Conn, error) {
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
