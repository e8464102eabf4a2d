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

// target is the attacked server and the state of the attackers.
type target struct {
	url, addr    string
	server       *harness.Server
	admin        *http.Client    // for requests of the test itself
	attackerCert tls.Certificate // of the attacker
	rand         *rand.Rand
	long         bool

	mu           sync.Mutex
	serverErrors map[string]int // responses with code 500, by request
	requestCount atomic.Int64
	// dialing bounds the number of concurrent handshakes.
	dialing chan struct{}
	// expectedErrors is the number of responses with code 500 that are accounted for.
	expectedErrors float64
}

// allowAllPolicy allows a user all requests except those that only administrators may send.
const allowAllPolicy = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":%q,"namespace":"*","resource":"*","apiGroup":"*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":%q,"nonResourcePath":"*"}}
`

// startTarget starts a server on which the attacker and the probe client are allowed everything, so
// that no attack stops at authorization.
func startTarget(t *testing.T, random *rand.Rand, long bool) (*target, *probeProcess) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.jsonl")
	rules := fmt.Sprintf(allowAllPolicy+allowAllPolicy, "mallory", "mallory", "probe", "probe")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	server := harness.StartServer(t, harness.WithFlags("--authorization-mode=ABAC", "--authorization-policy-file="+file,
		"--feature-gates=CBORServingAndStorage=true"))
	started := &target{
		url:          server.URL,
		addr:         strings.TrimPrefix(server.URL, "https://"),
		server:       server,
		rand:         random,
		long:         long,
		serverErrors: map[string]int{},
		dialing:      make(chan struct{}, 8),
	}
	started.attackerCert = tlsCertificate(t, server.PKI.Client("mallory"))
	started.admin = newClient(tlsCertificate(t, server.Admin))
	started.mustCreate(t, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"probe"}}`)
	started.mustCreate(t, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"hostile"}}`)
	started.mustCreate(t, "/api/v1/namespaces/probe/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mine"}}`)
	for i := range 20 { // data to read
		started.mustCreate(t, "/api/v1/namespaces/hostile/configmaps",
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large-%d"},"data":{"a":%q}}`, i,
				strings.Repeat("x", 500_000)))
	}
	var err error // responses with code 500 before the server was ready
	if started.expectedErrors, err = started.sumMetric("apiserver_request_total", `code="500"`); err != nil {
		t.Fatal(err)
	}
	return started, newProbeProcess(t, started.url, server.PKI.Client("probe"), ordinaryClient, probeTimeout)
}

// attackAtLowPriority lowers the priority of this process, which runs the attackers, until the test
// ends. Call it after the server has started, because child processes inherit the priority.
func attackAtLowPriority(t *testing.T) {
	t.Helper()
	if err := lowerPriority(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := restorePriority(); err != nil {
			t.Log("the following servers start at low priority: ", err)
		}
	})
}

// tlsCertificate parses a certificate and its key.
func tlsCertificate(t *testing.T, pair harness.Pair) tls.Certificate {
	t.Helper()
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// newClient returns a client with a certificate.
func newClient(certificate tls.Certificate) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}},
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100, DisableCompression: true,
	}}
}

// mustCreate creates an object as the administrator. path is the path of the collection.
func (x *target) mustCreate(t *testing.T, path, body string) {
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

// dial opens a TLS connection with one protocol. It is closed when ctx ends.
func (x *target) dial(ctx context.Context, proto string) (*tls.Conn, error) {
	dialer := tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true,
		Certificates:       []tls.Certificate{x.attackerCert},
		NextProtos:         []string{proto},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", x.addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return conn.(*tls.Conn), nil
}

// dialTCP opens a connection without TLS. It is closed when ctx ends.
func (x *target) dialTCP(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", x.addr)
	if err == nil {
		context.AfterFunc(ctx, func() { conn.Close() })
	}
	return conn, err
}

// sendAttack sends a request, reads as much of the response as arrives before the context ends, and
// records a response with code 500. It returns the status code, or 0 if there is no response.
func (x *target) sendAttack(ctx context.Context, client *http.Client, req *http.Request) (code int) {
	x.requestCount.Add(1)
	resp, err := client.Do(req.WithContext(ctx))
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	x.recordResponse(req.Method+" "+req.URL.String(), resp.StatusCode, text)
	return resp.StatusCode
}

// recordResponse records a response with code 500.
func (x *target) recordResponse(request string, code int, text []byte) {
	if code != http.StatusInternalServerError {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, known := range []string{"the spec replicas field", "no preferred addresses found"} {
		if strings.Contains(string(text), known) { // Kubernetes returns 500, too
			x.expectedErrors++
			return
		}
	}
	x.serverErrors[fmt.Sprintf("%.300s: %.300s", request, text)]++
}

// sumMetric returns the sum of the samples of a metric whose labels contain a text.
func (x *target) sumMetric(name, labels string) (sum float64, err error) {
	resp, err := x.admin.Get(x.url + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		space := strings.LastIndexByte(lines.Text(), ' ') // values of labels may contain spaces
		if space < 0 {
			continue
		}
		head, value := lines.Text()[:space], lines.Text()[space+1:]
		if metric, labelText, _ := strings.Cut(head, "{"); metric != name || !strings.Contains(labelText, labels) {
			continue
		}
		sampleValue, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum += sampleValue
	}
	return sum, lines.Err()
}

// heapSize returns the size of the server's heap after a garbage collection.
func (x *target) heapSize() (float64, error) {
	resp, err := x.admin.Get(x.url + "/debug/pprof/heap?gc=1")
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("collect garbage: %s, %v", resp.Status, err)
	}
	return x.sumMetric("go_memstats_heap_alloc_bytes", "")
}

// startProfile writes a profile of the server if BINNACLE_HOSTILE_PROFILES is set. The returned
// function waits until it is written.
func (x *target) startProfile(t *testing.T, name string, duration time.Duration) (wait func()) {
	dir := envOr("BINNACLE_HOSTILE_PROFILES", "")
	if dir == "" {
		return func() {}
	}
	done := make(chan error, 1)
	kind := envOr("BINNACLE_HOSTILE_PROFILE", "profile")
	go func() {
		resp, err := x.admin.Get(fmt.Sprintf("%s/debug/pprof/%s?seconds=%d", x.url, kind, max(1, int(duration.Seconds())-1)))
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

// runAttackers runs n attackers concurrently, each in a loop until the context ends.
func runAttackers(ctx context.Context, count int, attack func(ctx context.Context, i int)) {
	var attackers sync.WaitGroup
	for i := range count {
		attackers.Go(func() {
			for ctx.Err() == nil {
				attack(ctx, i)
			}
		})
	}
	attackers.Wait()
}

// holdConnectionOpen keeps a connection open until the context ends or the server closes it.
func holdConnectionOpen(ctx context.Context, conn net.Conn) {
	_ = conn.SetReadDeadline(time.Time{})
	_, _ = io.Copy(io.Discard, conn)
	conn.Close()
	pauseAttacker(ctx)
}

// pauseAttacker keeps a rejected attacker from using all CPU time of the test machine.
func pauseAttacker(ctx context.Context) {
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
