package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// stormers is the number of connections on which one service account lists all pods in a loop.
	// The server has stormReads and stormWrites seats.
	stormers    = 240
	stormReads  = 8
	stormWrites = 4
	stormPods   = 1000
	stormer     = "system:serviceaccount:bench-0:storm"
	// calm is the time of a run before and after its storm, storm the duration of the storm.
	calm  = 5 * time.Second
	storm = 20 * time.Second
	// probeInterval is the pause between two requests of a probe client.
	probeInterval = 50 * time.Millisecond
)

// A probeClient sends requests during the storm of another client.
type probeClient struct {
	name, user, group, method, path string
}

var probeClients = []probeClient{
	{"kubelet's heartbeat", "system:node:node-1", "system:nodes", http.MethodPatch, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1"},
	{"leader election", "system:kube-controller-manager", "", http.MethodPatch, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"},
	{"an administrator", "admin", "admins", http.MethodGet, "/api/v1/namespaces/bench-1/pods/pod-00001"},
}

// answer is a response to a probe client.
type answer struct {
	At        time.Duration // since the beginning of the run
	QueueTime time.Duration
	Code      int
}

// A backgroundLoad is the load under which the probe clients are measured.
type backgroundLoad struct {
	how, plot string
	fair      bool
	// name is the scenario of the process that generates it.
	name string
}

var backgroundLoads = []backgroundLoad{
	// A busy CPU affects all clients, whatever uses it.
	{"busy CPUs only", "busy", true, "spinning"},
	{"priority and fairness", "fair", true, "storming"},
	{"the limits alone", "limits", false, "storming"},
}

// fairness measures the latency of other clients while one client lists far more than the server
// can do: with priority and fairness, with the limits only, and, for comparison, on a machine that
// is equally busy with other work. plots is a folder for plots, or empty. names selects the
// troubles; none selects all.
func fairness(like *load, bin, plots string, names []string) error {
	var rows []string
	for _, t := range backgroundLoads {
		if len(names) > 0 && !slices.Contains(names, t.plot) {
			continue
		}
		answers, tried, err := stormed(like, bin, t)
		if err != nil {
			return err
		}
		for _, b := range probeClients {
			quiet, during := split(answers[b.name])
			rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |", t.how, b.name, latenciesOf(quiet), latenciesOf(during)))
		}
		if tried != "" {
			rows = append(rows, fmt.Sprintf("| %s | the storm | | %s |", t.how, tried))
		}
		if plots != "" {
			if err := drawStorm(filepath.Join(plots, "storm-"+t.plot+".svg"), t.how, answers); err != nil {
				return err
			}
		}
	}
	fmt.Printf("\n| with | client | before and after: p50 / p99 ms, rejected | during the storm |\n|---|---|---|---|\n%s\n", strings.Join(rows, "\n"))
	return nil
}

// stormed runs a server through a storm.
func stormed(like *load, bin string, t backgroundLoad) (answers map[string][]answer, tried string, err error) {
	b, err := newBench(bin)
	if err != nil {
		return nil, "", err
	}
	defer b.close()
	api, err := b.apiserver("fairness", "--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount,NodeRestriction",
		fmt.Sprintf("--enable-priority-and-fairness=%t", t.fair),
		fmt.Sprintf("--max-requests-inflight=%d", stormReads), fmt.Sprintf("--max-mutating-requests-inflight=%d", stormWrites))
	if err != nil {
		return nil, "", err
	}
	defer api.stop()
	l := b.load(like, "apiserver", api.url, api, "admin")
	l.n = stormPods
	c := l.newClient()
	l.run(c, "seed")
	for _, namespace := range []string{"kube-node-lease", "kube-system"} {
		_ = l.create(c, "/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`) // the server's own namespaces exist
	}
	for _, o := range probeClients[:2] {
		at, name := o.path[:strings.LastIndexByte(o.path, '/')], o.path[strings.LastIndexByte(o.path, '/')+1:]
		if err := l.create(c, at, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"`+name+`"},"spec":{"holderIdentity":"a"}}`); err != nil {
			return nil, "", err
		}
	}

	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	as := []string{self, "-server=" + l.server, "-cert=" + l.certFile, "-key=" + l.keyFile, "-ca=" + l.caFile}
	// The probe clients have real-time priority, as if they ran on other machines.
	standing := exec.Command("chrt", append(append([]string{"--rr", "1"}, as...), "standing")...)
	var output bytes.Buffer
	standing.Stdout, standing.Stderr = &output, os.Stderr
	if err := standing.Start(); err != nil {
		return nil, "", err
	}
	time.Sleep(calm) // the time before the storm is measured, too
	// The CPU time of the storm's clients is not the server's. They run at idle priority, as if
	// they ran on other machines.
	out, err := exec.Command("chrt", append(append([]string{"--idle", "0"}, as...), t.name)...).Output()
	if err != nil {
		return nil, "", fmt.Errorf("storm: %w", err)
	}
	if err := standing.Wait(); err != nil {
		return nil, "", fmt.Errorf("probe clients, which need the right to use real-time priority: %w", err)
	}
	if err := json.Unmarshal(output.Bytes(), &answers); err != nil {
		return nil, "", err
	}
	return answers, strings.TrimSpace(string(out)), nil
}

// standing runs the probe clients in a separate process and prints their responses.
func (l *load) standing() error {
	ctx, stop := context.WithTimeout(context.Background(), 2*calm+storm)
	defer stop()
	answers := map[string][]answer{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for _, o := range probeClients {
		wg.Go(func() {
			got := l.probe(ctx, o, start)
			mu.Lock()
			defer mu.Unlock()
			answers[o.name] = got
		})
	}
	wg.Wait()
	return json.NewEncoder(os.Stdout).Encode(answers)
}

func (l *load) probe(ctx context.Context, o probeClient, start time.Time) (out []answer) {
	c := l.newClient()
	defer c.CloseIdleConnections()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return out
		case <-tick.C:
		}
		var body io.Reader
		if o.method == http.MethodPatch {
			body = strings.NewReader(fmt.Sprintf(`{"metadata":{"annotations":{"probeInterval":"%d"}}}`, n))
		}
		sent := time.Now()
		code := l.requestAs(ctx, c, o.user, o.group, o.method, o.path, body)
		if ctx.Err() == nil {
			out = append(out, answer{sent.Sub(start), time.Since(sent), code})
		}
	}
}

// requestAs sends a request as another user, whose flow it then belongs to.
func (l *load) requestAs(ctx context.Context, c *http.Client, user, group, method, path string, body io.Reader) (code int) {
	req, err := http.NewRequestWithContext(ctx, method, l.server+path, body)
	if err != nil {
		return 0
	}
	req.Header.Set("Impersonate-User", user)
	if group != "" {
		req.Header.Set("Impersonate-Group", group)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// storming is the storm in a separate process.
func (l *load) storming() {
	ctx, stop := context.WithTimeout(context.Background(), storm)
	defer stop()
	var mu sync.Mutex
	codes := map[int]int{}
	var wg sync.WaitGroup
	for range stormers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c := l.newClient()
			c.Transport.(*http.Transport).TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{} // one connection per client
			defer c.CloseIdleConnections()
			for ctx.Err() == nil {
				code := l.requestAs(ctx, c, stormer, "system:serviceaccounts", http.MethodGet, "/api/v1/pods", nil)
				mu.Lock()
				codes[code]++
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	fmt.Printf("%d lists answered, %d rejected\n", codes[http.StatusOK], codes[http.StatusTooManyRequests])
}

// spinning uses all CPUs for the duration of a storm, in a separate process.
func spinning() {
	end := time.Now().Add(storm)
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for time.Now().Before(end) {
			}
		})
	}
	wg.Wait()
}

// split separates the responses during the storm from those before and after it.
func split(all []answer) (quiet, during []answer) {
	for _, a := range all {
		if a.At > calm && a.At < calm+storm {
			during = append(during, a)
		} else {
			quiet = append(quiet, a)
		}
	}
	return quiet, during
}

func latenciesOf(all []answer) string {
	if len(all) == 0 {
		return "none"
	}
	rejected := 0
	waits := make([]time.Duration, 0, len(all))
	for _, a := range all {
		waits = append(waits, a.QueueTime)
		if a.Code != http.StatusOK {
			rejected++
		}
	}
	slices.Sort(waits)
	ms := func(part float64) float64 {
		return float64(waits[int(part*float64(len(waits)-1))].Microseconds()) / 1000
	}
	return fmt.Sprintf("%.1f / %.1f, %d of %d", ms(0.5), ms(0.99), rejected, len(all))
}
