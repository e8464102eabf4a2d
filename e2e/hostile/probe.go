package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

const (
	// probeInterval is the interval of the requests of a probe client.
	probeInterval = 10 * time.Millisecond
	// probeTimeout bounds the wait for a response. A request that takes longer counts as failed.
	probeTimeout = 20 * time.Second
	// tenantProbeTimeout is probeTimeout while the attacker has the rights of one namespace.
	tenantProbeTimeout = 10 * time.Second
)

// probeClient sends the requests of an ordinary client one after another and records the latency of
// each.
type probeClient struct {
	url  string
	c    *http.Client
	role role
	wait time.Duration // for a response
	// version is the resource version of the lease of a leader election.
	version string

	mu    sync.Mutex
	took  []time.Duration
	wrong []error
}

// run sends requests until the context ends.
func (b *probeClient) run(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		start := time.Now()
		err := b.request(n)
		b.mu.Lock()
		b.took = append(b.took, time.Since(start))
		if err != nil {
			b.wrong = append(b.wrong, err)
		}
		b.mu.Unlock()
	}
}

// role selects the requests of a probe client.
type role string

const (
	ordinary      role = "ordinary"      // reads and writes in a namespace of its own
	leader        role = "leader"        // renews the lease of a leader election
	administrator role = "administrator" // a member of system:masters
)

// request sends the n-th request.
func (b *probeClient) request(n int) error {
	switch b.role {
	case leader:
		return b.renew()
	case administrator:
		return b.do("PUT", "/api/v1/namespaces/default/configmaps/administrator", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"administrator"},"data":{"n":"%d"}}`, n))
	}
	const object = "/api/v1/namespaces/probe/configmaps/mine"
	switch n % 4 {
	case 0:
		return b.do("GET", object, "")
	case 1:
		return b.do("PUT", object, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mine"},"data":{"n":"%d"}}`, n))
	case 2:
		return b.do("GET", "/api/v1/namespaces/probe/configmaps", "")
	}
	return b.do("GET", "/livez", "")
}

// The lease that kube-controller-manager renews.
const (
	leaseCollection = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	leaseName       = "kube-controller-manager"
)

func lease(now time.Time, version string) string {
	return fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q,"resourceVersion":%q},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"renewTime":%q}}`,
		leaseName, version, now.UTC().Format("2006-01-02T15:04:05.000000Z"))
}

// renew updates the lease as client-go does, with the resource version that it received last.
func (b *probeClient) renew() error {
	const path = leaseCollection + "/" + leaseName
	if b.version == "" {
		text, err := b.read("GET", path, "")
		b.version = versionOf(text)
		return err
	}
	text, err := b.read("PUT", path, lease(time.Now(), b.version))
	b.version = versionOf(text)
	return err
}

func versionOf(text []byte) string {
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	_ = json.Unmarshal(text, &o)
	return o.Metadata.ResourceVersion
}

func (b *probeClient) do(method, path, body string) error {
	_, err := b.read(method, path, body)
	return err
}

// read is do that returns the response body.
func (b *probeClient) read(method, path, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := b.c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode > 299 {
		err = fmt.Errorf("%s %s: %s: %.200s", method, path, resp.Status, text)
	}
	return text, err
}

// latencies summarizes the latencies and failures of requests.
type latencies struct {
	N        int
	P50, P99 time.Duration
	Most     time.Duration
	Wrong    string // the first failures, "" if none
}

func (w latencies) String() string {
	const exact = 100 * time.Microsecond
	return fmt.Sprintf("%5d requests, p50 %8v, p99 %8v, max %8v", w.N, w.P50.Round(exact), w.P99.Round(exact), w.Most.Round(exact))
}

// collect returns the summary since the last call.
func (b *probeClient) collect() latencies {
	b.mu.Lock()
	defer b.mu.Unlock()
	took, wrong := b.took, b.wrong
	b.took = nil
	b.wrong = nil
	slices.Sort(took)
	w := latencies{N: len(took)}
	if w.N > 0 {
		w.P50 = took[w.N/2]
		w.P99 = took[w.N*99/100]
		w.Most = took[w.N-1]
	}
	if err := errors.Join(wrong[:min(len(wrong), 3)]...); err != nil {
		w.Wrong = err.Error()
	}
	return w
}

// probeEnv makes the test binary run a probe client. Its value holds the URL, the certificate and
// key files, the role and the timeout. The process prints a summary for each line of its input.
const probeEnv = "BINNACLE_HOSTILE_PROBE"

// runProbe runs a probe client until its standard input ends.
func runProbe(where string) error {
	var url, cert, key string
	var as role
	var wait time.Duration
	if _, err := fmt.Sscan(where, &url, &cert, &key, &as, &wait); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	b := &probeClient{url: url, c: client(pair), role: as, wait: wait}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go b.run(ctx)
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := out.Encode(b.collect()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// probeProcess is a probe client in its own process. The load of the attackers in the test process
// does not affect its latencies.
type probeProcess struct {
	role role
	in   io.Writer
	out  *json.Decoder
}

// newProbeProcess starts a probe client in a process of its own, so that the load of the attack
// does not delay it.
func newProbeProcess(t *testing.T, url string, p harness.Pair, as role, wait time.Duration) *probeProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %s %d", probeEnv, url, p.CertFile, p.KeyFile, as, wait))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("probe client: %v", err)
		}
	})
	return &probeProcess{as, in, json.NewDecoder(out)}
}

// collect returns the summary since the last call, with an error if a request failed.
func (w *probeProcess) collect() (latencies, error) {
	if _, err := io.WriteString(w.in, "\n"); err != nil {
		return latencies{}, err
	}
	var seen latencies
	err := w.out.Decode(&seen)
	if err == nil && seen.Wrong != "" {
		err = fmt.Errorf("%s: %s", w.role, seen.Wrong)
	}
	return seen, err
}
