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
	// pace is how often the bystander asks.
	pace = 10 * time.Millisecond
	// bystanding is how long the bystander waits for an answer. A request that takes longer
	// counts as failed.
	bystanding = 20 * time.Second
	// besideTenant is the same beside an attacker with the rights of one namespace.
	besideTenant = 10 * time.Second
)

// bystander does what ordinary clients do, one request after the other, and notes how
// long each took.
type bystander struct {
	url  string
	c    *http.Client
	role role
	wait time.Duration // for an answer
	// version is that of the lease of a leader election.
	version string

	mu    sync.Mutex
	took  []time.Duration
	wrong []error
}

// run lets it go on until the context ends.
func (b *bystander) run(ctx context.Context) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		begin := time.Now()
		err := b.ask(n)
		b.mu.Lock()
		b.took = append(b.took, time.Since(begin))
		if err != nil {
			b.wrong = append(b.wrong, err)
		}
		b.mu.Unlock()
	}
}

// role says which client the bystander is.
type role string

const (
	ordinary      role = "ordinary"      // reads and writes in a namespace of its own
	leader        role = "leader"        // renews the lease of a leader election
	administrator role = "administrator" // is in system:masters
)

// ask makes one request.
func (b *bystander) ask(n int) error {
	switch b.role {
	case leader:
		return b.renew()
	case administrator:
		return b.do("PUT", "/api/v1/namespaces/default/configmaps/administrator", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"administrator"},"data":{"n":"%d"}}`, n))
	}
	const object = "/api/v1/namespaces/bystander/configmaps/mine"
	switch n % 4 {
	case 0:
		return b.do("GET", object, "")
	case 1:
		return b.do("PUT", object, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mine"},"data":{"n":"%d"}}`, n))
	case 2:
		return b.do("GET", "/api/v1/namespaces/bystander/configmaps", "")
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

// renew updates the lease as client-go does, from the version that it saw last.
func (b *bystander) renew() error {
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

func (b *bystander) do(method, path, body string) error {
	_, err := b.read(method, path, body)
	return err
}

// read is do that returns the answer.
func (b *bystander) read(method, path, body string) ([]byte, error) {
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

// waits is how long requests took.
type waits struct {
	N        int
	P50, P99 time.Duration
	Most     time.Duration
	Wrong    string // what was not answered as it should be
}

func (w waits) String() string {
	const exact = 100 * time.Microsecond
	return fmt.Sprintf("%5d requests, half within %8v, 99%% within %8v, all within %8v", w.N, w.P50.Round(exact), w.P99.Round(exact), w.Most.Round(exact))
}

// take returns what was seen since it was called last.
func (b *bystander) take() waits {
	b.mu.Lock()
	defer b.mu.Unlock()
	took, wrong := b.took, b.wrong
	b.took, b.wrong = nil, nil
	slices.Sort(took)
	w := waits{N: len(took)}
	if w.N > 0 {
		w.P50, w.P99, w.Most = took[w.N/2], took[w.N*99/100], took[w.N-1]
	}
	if err := errors.Join(wrong[:min(len(wrong), 3)]...); err != nil {
		w.Wrong = err.Error()
	}
	return w
}

// bystanderEnv makes a process of the test the bystander: it says where, and each line of
// its input asks what it saw.
const bystanderEnv = "BINNACLE_HOSTILE_BYSTANDER"

// standBy is that process.
func standBy(where string) error {
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
	b := &bystander{url: url, c: client(pair), role: as, wait: wait}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go b.run(ctx)
	asked, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for asked.Scan() {
		if err := out.Encode(b.take()); err != nil {
			return err
		}
	}
	return asked.Err()
}

// witness asks a bystander in a process of its own, so that how busy the attackers
// are does not show in what it sees.
type witness struct {
	role role
	in   io.Writer
	out  *json.Decoder
}

func newWitness(t *testing.T, url string, p harness.Pair, as role, wait time.Duration) *witness {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %s %d", bystanderEnv, url, p.CertFile, p.KeyFile, as, wait))
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
			t.Errorf("the bystander: %v", err)
		}
	})
	return &witness{as, in, json.NewDecoder(out)}
}

// take is that of the bystander.
func (w *witness) take() (waits, error) {
	if _, err := io.WriteString(w.in, "\n"); err != nil {
		return waits{}, err
	}
	var seen waits
	err := w.out.Decode(&seen)
	if err == nil && seen.Wrong != "" {
		err = fmt.Errorf("%s: %s", w.role, seen.Wrong)
	}
	return seen, err
}
