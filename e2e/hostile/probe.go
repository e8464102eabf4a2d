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
	// tenantProbeTimeout is used instead of probeTimeout while the attacker has the rights of one
	// namespace.
	tenantProbeTimeout = 10 * time.Second
)

// probeClient sends the requests of an ordinary client one after another and records the latency of
// each.
type probeClient struct {
	url     string
	client  *http.Client
	role    probeRole
	timeout time.Duration // for a response
	// leaseVersion is the resource version of the lease of a leader election.
	leaseVersion string

	mu        sync.Mutex
	latencies []time.Duration
	failures  []error
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
		err := b.sendNext(n)
		b.mu.Lock()
		b.latencies = append(b.latencies, time.Since(start))
		if err != nil {
			b.failures = append(b.failures, err)
		}
		b.mu.Unlock()
	}
}

// probeRole selects the requests of a probe client.
type probeRole string

const (
	ordinaryClient probeRole = "ordinary"      // reads and writes in a namespace of its own
	leaderElection probeRole = "leader"        // renews the lease of a leader election
	administrator  probeRole = "administrator" // a member of system:masters
)

// sendNext sends the n-th request.
func (b *probeClient) sendNext(number int) error {
	switch b.role {
	case leaderElection:
		return b.renewLease()
	case administrator:
		return b.send("PUT", "/api/v1/namespaces/default/configmaps/administrator",
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"administrator"},"data":{"n":"%d"}}`, number))
	}
	const object = "/api/v1/namespaces/probe/configmaps/mine"
	switch number % 4 {
	case 0:
		return b.send("GET", object, "")
	case 1:
		return b.send("PUT", object,
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mine"},"data":{"n":"%d"}}`, number))
	case 2:
		return b.send("GET", "/api/v1/namespaces/probe/configmaps", "")
	}
	return b.send("GET", "/livez", "")
}

// The lease that kube-controller-manager renews.
const (
	leaseCollection = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	leaseName       = "kube-controller-manager"
)

// leaseJSON returns the lease, renewed at a time.
func leaseJSON(now time.Time, version string) string {
	return fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q,"resourceVersion":%q},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"renewTime":%q}}`,
		leaseName, version, now.UTC().Format("2006-01-02T15:04:05.000000Z"))
}

// renewLease updates the lease as client-go does, with the resource version that it received last.
func (b *probeClient) renewLease() error {
	const path = leaseCollection + "/" + leaseName
	if b.leaseVersion == "" {
		text, err := b.sendAndRead("GET", path, "")
		b.leaseVersion = resourceVersionOf(text)
		return err
	}
	text, err := b.sendAndRead("PUT", path, leaseJSON(time.Now(), b.leaseVersion))
	b.leaseVersion = resourceVersionOf(text)
	return err
}

// resourceVersionOf returns the resource version of an object, or "".
func resourceVersionOf(text []byte) string {
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	_ = json.Unmarshal(text, &o)
	return o.Metadata.ResourceVersion
}

// send sends a request, which must succeed.
func (b *probeClient) send(method, path, body string) error {
	_, err := b.sendAndRead(method, path, body)
	return err
}

// sendAndRead sends a request, which must succeed, and returns the response body.
func (b *probeClient) sendAndRead(method, path, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := b.client.Do(req)
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

// summary summarizes the latencies and failures of requests.
type summary struct {
	Requests int
	P50, P99 time.Duration
	Max      time.Duration
	Failures string // the first failures, "" if none
}

func (w summary) String() string {
	const exact = 100 * time.Microsecond
	return fmt.Sprintf("%5d requests, p50 %8v, p99 %8v, max %8v", w.Requests, w.P50.Round(exact), w.P99.Round(exact),
		w.Max.Round(exact))
}

// collect returns the summary since the last call.
func (b *probeClient) collect() summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	took, wrong := b.latencies, b.failures
	b.latencies = nil
	b.failures = nil
	slices.Sort(took)
	w := summary{Requests: len(took)}
	if w.Requests > 0 {
		w.P50 = took[w.Requests/2]
		w.P99 = took[w.Requests*99/100]
		w.Max = took[w.Requests-1]
	}
	if err := errors.Join(wrong[:min(len(wrong), 3)]...); err != nil {
		w.Failures = err.Error()
	}
	return w
}

// probeEnv makes the test binary run a probe client. Its value holds the URL, the certificate and
// key files, the role and the timeout. The process prints a summary for each line of its input.
const probeEnv = "BINNACLE_HOSTILE_PROBE"

// runProbe runs a probe client until its standard input ends.
func runProbe(where string) error {
	var url, cert, key string
	var clientRole probeRole
	var wait time.Duration
	if _, err := fmt.Sscan(where, &url, &cert, &key, &clientRole, &wait); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	b := &probeClient{url: url, client: newClient(pair), role: clientRole, timeout: wait}
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
	role      probeRole
	input     io.Writer
	summaries *json.Decoder
}

// newProbeProcess starts a probe client in a process of its own, so that the load of the attack
// does not delay it.
func newProbeProcess(t *testing.T, url string, pair harness.Pair, clientRole probeRole, wait time.Duration) *probeProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %s %d", probeEnv, url, pair.CertFile, pair.KeyFile, clientRole, wait))
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
	return &probeProcess{clientRole, in, json.NewDecoder(out)}
}

// collect returns the summary since the last call, with an error if a request failed.
func (w *probeProcess) collect() (summary, error) {
	if _, err := io.WriteString(w.input, "\n"); err != nil {
		return summary{}, err
	}
	var seen summary
	err := w.summaries.Decode(&seen)
	if err == nil && seen.Failures != "" {
		err = fmt.Errorf("%s: %s", w.role, seen.Failures)
	}
	return seen, err
}
