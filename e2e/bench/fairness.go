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
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// stormConnections is the number of connections on which one service account, stormUser, lists
	// all pods in a loop. They far outnumber the seats that the server has for reads and writes.
	stormConnections = 240
	stormUser        = "system:serviceaccount:bench-0:storm"
	stormReads       = 8
	stormWrites      = 4
	stormPods        = 1000
	// quietTime is the time of a run before and after its storm, stormTime the duration of the
	// storm.
	quietTime = 5 * time.Second
	stormTime = 20 * time.Second
	// probeInterval is the pause between two requests of a probe client.
	probeInterval = 50 * time.Millisecond
)

// A probeClient sends the same request again and again while another client overloads the server.
type probeClient struct {
	name, user, group, method, path string
}

var probeClients = []probeClient{
	{
		name:   "kubelet's heartbeat",
		user:   "system:node:node-1",
		group:  "system:nodes",
		method: http.MethodPatch,
		path:   "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1",
	},
	{
		name:   "leader election",
		user:   "system:kube-controller-manager",
		method: http.MethodPatch,
		path:   "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager",
	},
	{
		name:   "an administrator",
		user:   "admin",
		group:  "admins",
		method: http.MethodGet,
		path:   "/api/v1/namespaces/bench-1/pods/pod-00001",
	},
}

// probeResponse describes a response to a probe client. Code is 0 if the request failed.
type probeResponse struct {
	At      time.Duration // since the beginning of the run
	Latency time.Duration
	Code    int
}

// A backgroundLoad is the load under which the probe clients are measured.
type backgroundLoad struct {
	label               string // name in the table
	id                  string // selects it on the command line and names its plot
	priorityAndFairness bool
	command             string // scenario of the separate process that generates the load
}

var fairnessLoads = []backgroundLoad{
	// A busy CPU affects all clients, whatever uses it.
	{label: "busy CPUs only", id: "busy", priorityAndFairness: true, command: "spinning"},
	{label: "priority and fairness", id: "fair", priorityAndFairness: true, command: "storming"},
	{label: "the limits alone", id: "limits", priorityAndFairness: false, command: "storming"},
}

// compareFairness measures the latency of other clients while one client lists far more than the
// server can do: with priority and fairness, with the limits only, and, for comparison, on a
// machine that is equally busy with other work. plots is a folder for plots, or empty. names
// selects loads by their id; none selects all.
func compareFairness(like *load, bin, plots string, names []string) error {
	var rows []string
	for _, background := range fairnessLoads {
		if len(names) > 0 && !slices.Contains(names, background.id) {
			continue
		}
		responses, stormOutput, err := measureFairness(like, bin, background)
		if err != nil {
			return err
		}
		for _, client := range probeClients {
			quiet, during := splitByStorm(responses[client.name])
			rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |", background.label, client.name, formatLatencies(quiet),
				formatLatencies(during)))
		}
		if stormOutput != "" {
			rows = append(rows, fmt.Sprintf("| %s | the storm | | %s |", background.label, stormOutput))
		}
		if plots != "" {
			if err := drawStorm(filepath.Join(plots, "storm-"+background.id+".svg"), background.label, responses); err != nil {
				return err
			}
		}
	}
	fmt.Println("\n| with | client | before and after: p50 / p99 ms, rejected | during the storm |")
	fmt.Printf("|---|---|---|---|\n%s\n", strings.Join(rows, "\n"))
	return nil
}

// measureFairness runs a server and probe clients while a background load begins and ends. It
// returns the responses by probe client, and the output of the process that generates the load.
func measureFairness(like *load, bin string,
	background backgroundLoad) (responses map[string][]probeResponse, stormOutput string, err error) {
	// 1. Start the server, and create the pods and leases that the clients use.
	started, err := newBench(bin)
	if err != nil {
		return nil, "", err
	}
	defer started.close()
	api, err := started.startAPIServerProcess("fairness", "--authorization-mode=AlwaysAllow",
		"--disable-admission-plugins=ServiceAccount,NodeRestriction",
		fmt.Sprintf("--enable-priority-and-fairness=%t", background.priorityAndFairness),
		fmt.Sprintf("--max-requests-inflight=%d", stormReads), fmt.Sprintf("--max-mutating-requests-inflight=%d", stormWrites))
	if err != nil {
		return nil, "", err
	}
	defer api.terminate()
	running := started.newLoad(like, "apiserver", api.url, api, "admin")
	running.objectCount = stormPods
	c := running.newClient()
	running.runScenario(c, "seed")
	if err := running.createProbedLeases(c); err != nil {
		return nil, "", err
	}

	// 2. Start the probe clients. They have real-time priority, as if they ran on other machines.
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	loadServer := []string{self, "-server=" + running.server, "-cert=" + running.certFile, "-key=" + running.keyFile, "-ca=" + running.caFile}
	probes := exec.Command("chrt", append(append([]string{"--rr", "1"}, loadServer...), "standing")...)
	var output bytes.Buffer
	probes.Stdout, probes.Stderr = &output, os.Stderr
	if err := probes.Start(); err != nil {
		return nil, "", err
	}
	time.Sleep(quietTime) // the time before the storm is measured, too

	// 3. Run the storm. The CPU time of its clients is not the server's, so they run at idle
	// priority, as if they ran on other machines.
	out, err := exec.Command("chrt", append(append([]string{"--idle", "0"}, loadServer...), background.command)...).Output()
	if err != nil {
		return nil, "", fmt.Errorf("storm: %w", err)
	}

	// 4. Wait until the probe clients end, and decode their responses.
	if err := probes.Wait(); err != nil {
		return nil, "", fmt.Errorf("probe clients, which need the right to use real-time priority: %w", err)
	}
	if err := json.Unmarshal(output.Bytes(), &responses); err != nil {
		return nil, "", err
	}
	return responses, strings.TrimSpace(string(out)), nil
}

// createProbedLeases creates the leases that probe clients patch, and their namespaces.
func (l *load) createProbedLeases(client *http.Client) error {
	for _, namespace := range []string{"kube-node-lease", "kube-system"} {
		_ = l.create(client, "/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`) // ignores that kube-system exists
	}
	for _, o := range probeClients {
		if o.method != http.MethodPatch {
			continue // its pod exists already
		}
		collection, name := path.Split(o.path)
		lease := `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"` + name +
			`"},"spec":{"holderIdentity":"a"}}`
		if err := l.create(client, strings.TrimSuffix(collection, "/"), lease); err != nil {
			return err
		}
	}
	return nil
}

// runProbeClients runs the probe clients for the whole measurement and prints their responses as
// JSON. It runs in a separate process.
func (l *load) runProbeClients() error {
	ctx, stop := context.WithTimeout(context.Background(), 2*quietTime+stormTime)
	defer stop()
	responses := map[string][]probeResponse{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for _, o := range probeClients {
		wg.Go(func() {
			got := l.probe(ctx, o, start)
			mu.Lock()
			defer mu.Unlock()
			responses[o.name] = got
		})
	}
	wg.Wait()
	return json.NewEncoder(os.Stdout).Encode(responses)
}

// probe sends the requests of a probe client until ctx ends.
func (l *load) probe(ctx context.Context, o probeClient, start time.Time) (out []probeResponse) {
	client := l.newClient()
	defer client.CloseIdleConnections()
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
		code := l.requestAs(ctx, client, o.user, o.group, o.method, o.path, body)
		if ctx.Err() == nil {
			out = append(out, probeResponse{sent.Sub(start), time.Since(sent), code})
		}
	}
}

// requestAs sends a request as another user, so that it belongs to the flow of that user. It
// returns the status code, or 0 on failure.
func (l *load) requestAs(ctx context.Context, client *http.Client, user, group, method, path string, body io.Reader) (code int) {
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
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// runStorm lists all pods in a loop on many connections, and prints the number of successful and
// rejected lists. It runs in a separate process.
func (l *load) runStorm() {
	ctx, stop := context.WithTimeout(context.Background(), stormTime)
	defer stop()
	var mu sync.Mutex
	codes := map[int]int{}
	var wg sync.WaitGroup
	for range stormConnections {
		wg.Go(func() {
			client := l.newClient()
			// An empty map disables HTTP/2, so each client has one connection.
			client.Transport.(*http.Transport).TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				code := l.requestAs(ctx, client, stormUser, "system:serviceaccounts", http.MethodGet, "/api/v1/pods", nil)
				mu.Lock()
				codes[code]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	fmt.Printf("%d lists succeeded, %d were rejected\n", codes[http.StatusOK], codes[http.StatusTooManyRequests])
}

// occupyCPUs uses all CPUs for the duration of a storm. It runs in a separate process.
func occupyCPUs() {
	end := time.Now().Add(stormTime)
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for time.Now().Before(end) {
			}
		})
	}
	wg.Wait()
}

// splitByStorm separates the responses during the storm from those before and after it.
func splitByStorm(responses []probeResponse) (quiet, during []probeResponse) {
	for _, a := range responses {
		if a.At > quietTime && a.At < quietTime+stormTime {
			during = append(during, a)
		} else {
			quiet = append(quiet, a)
		}
	}
	return quiet, during
}

// formatLatencies formats the median and 99th percentile in ms and the number of rejected requests.
func formatLatencies(responses []probeResponse) string {
	if len(responses) == 0 {
		return "none"
	}
	rejected := 0
	waits := make([]time.Duration, 0, len(responses))
	for _, a := range responses {
		waits = append(waits, a.Latency)
		if a.Code != http.StatusOK {
			rejected++
		}
	}
	slices.Sort(waits)
	ms := func(part float64) float64 {
		return float64(waits[int(part*float64(len(waits)-1))].Microseconds()) / 1000
	}
	return fmt.Sprintf("%.1f / %.1f, %d of %d", ms(0.5), ms(0.99), rejected, len(responses))
}
