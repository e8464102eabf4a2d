package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// target is the server that is attacked, with what attackers know.
type target struct {
	url, addr string
	server    *harness.Server
	admin     *http.Client // for what the test itself asks
	mallory   tls.Certificate
	rand      *rand.Rand
	long      bool

	mu     sync.Mutex
	failed map[string]int // what was answered with 500, by request
	sent   atomic.Int64
	// dialing bounds how many connect at a time.
	dialing chan struct{}
	// counted are the answers of 500 that the server counted so far.
	counted float64
}

// policy lets users do what they like, but for what only administrators may.
const policy = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":%q,"namespace":"*","resource":"*","apiGroup":"*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":%q,"nonResourcePath":"*"}}
`

// start starts a server, and lets mallory and the bystander do all that they like, so
// that attacks come as far as they can.
func start(t *testing.T, r *rand.Rand, long bool) (*target, *witness) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.jsonl")
	rules := fmt.Sprintf(policy+policy, "mallory", "mallory", "bystander", "bystander")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.StartServer(t, harness.WithFlags("--authorization-mode=ABAC", "--authorization-policy-file="+file,
		"--feature-gates=CBORServingAndStorage=true"))
	x := &target{url: s.URL, addr: strings.TrimPrefix(s.URL, "https://"), server: s, rand: r, long: long, failed: map[string]int{}, dialing: make(chan struct{}, 8)}
	x.mallory = certificate(t, s.PKI.Client("mallory"))
	x.admin = client(certificate(t, s.Admin))
	x.create(t, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bystander"}}`)
	x.create(t, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"hostile"}}`)
	x.create(t, "/api/v1/namespaces/bystander/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mine"}}`)
	for i := range 20 { // so that there is something to read
		x.create(t, "/api/v1/namespaces/hostile/configmaps",
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large-%d"},"data":{"a":%q}}`, i, strings.Repeat("x", 500_000)))
	}
	var err error // it was not ready at first, and said so
	if x.counted, err = x.metric("apiserver_request_total", `code="500"`); err != nil {
		t.Fatal(err)
	}
	return x, newWitness(t, x.url, s.PKI.Client("bystander"), ordinary, bystanding)
}

func certificate(t *testing.T, p harness.Pair) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func client(c tls.Certificate) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{c}},
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100, DisableCompression: true,
	}}
}

func (x *target) create(t *testing.T, path, body string) {
	t.Helper()
	resp, err := x.admin.Post(x.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %s: %s", path, resp.Status, text)
	}
}

// dial opens a connection with one protocol.
func (x *target) dial(ctx context.Context, proto string) (*tls.Conn, error) {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{x.mallory}, NextProtos: []string{proto}}}
	conn, err := d.DialContext(ctx, "tcp", x.addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return conn.(*tls.Conn), nil
}

// dialTCP is dial without TLS.
func (x *target) dialTCP(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", x.addr)
	if err == nil {
		context.AfterFunc(ctx, func() { conn.Close() })
	}
	return conn, err
}

// ask sends a request, and reads of its answer what comes within the context.
func (x *target) ask(ctx context.Context, c *http.Client, req *http.Request) (code int) {
	x.sent.Add(1)
	resp, err := c.Do(req.WithContext(ctx))
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	x.answered(req.Method+" "+req.URL.String(), resp.StatusCode, text)
	return resp.StatusCode
}

// answered notes an answer that must not be.
func (x *target) answered(request string, code int, text []byte) {
	if code != http.StatusInternalServerError {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, known := range []string{"the spec replicas field", "no preferred addresses found"} {
		if strings.Contains(string(text), known) { // as Kubernetes answers
			x.counted++
			return
		}
	}
	x.failed[fmt.Sprintf("%.300s: %.300s", request, text)]++
}

// metric sums the samples of a metric whose labels contain a text.
func (x *target) metric(name, labels string) (sum float64, err error) {
	resp, err := x.admin.Get(x.url + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		head, value, _ := strings.Cut(lines.Text(), " ")
		if n, l, _ := strings.Cut(head, "{"); n != name || !strings.Contains(l, labels) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, lines.Err()
}

// heap is what the server holds after it has collected its garbage.
func (x *target) heap() (float64, error) {
	resp, err := x.admin.Get(x.url + "/debug/pprof/heap?gc=1")
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("collect garbage: %s, %v", resp.Status, err)
	}
	return x.metric("go_memstats_heap_alloc_bytes", "")
}

// profile keeps where the server's time goes, if somebody wants to know; what it returns
// waits for that.
func (x *target) profile(t *testing.T, name string, d time.Duration) (wait func()) {
	dir := environment("BINNACLE_HOSTILE_PROFILES", "")
	if dir == "" {
		return func() {}
	}
	done := make(chan error, 1)
	kind := environment("BINNACLE_HOSTILE_PROFILE", "profile")
	go func() {
		resp, err := x.admin.Get(fmt.Sprintf("%s/debug/pprof/%s?seconds=%d", x.url, kind, max(1, int(d.Seconds())-1)))
		if err != nil {
			done <- err
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %.200s", resp.Status, text)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+"."+kind), text, 0o600)
		}
		done <- err
	}()
	return func() {
		if err := <-done; err != nil {
			t.Errorf("profile of %s: %v", name, err)
		}
	}
}

// crowd runs n attackers side by side, each again and again until the context ends.
func crowd(ctx context.Context, n int, attack func(ctx context.Context, i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				attack(ctx, i)
			}
		})
	}
	wg.Wait()
}

// hold keeps what an attacker has until the context ends, or the server cuts it.
func hold(ctx context.Context, conn net.Conn) {
	_ = conn.SetReadDeadline(time.Time{})
	_, _ = io.Copy(io.Discard, conn)
	conn.Close()
	rest(ctx)
}

// rest keeps an attacker that is refused from using up the machine of the test.
func rest(ctx context.Context) {
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
