package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The created objects are distributed evenly over this many namespaces and nodes.
const (
	namespaces = 10
	nodes      = 100
)

// load describes a server and the load on it, and collects results.
type load struct {
	server            string // URL
	caFile            string // if empty, the server's certificate is not verified
	certFile, keyFile string // client certificate; may be empty
	token             string // bearer token; may be empty
	pids              string // processes whose CPU and memory are measured: name=pid, comma-separated

	objectCount int
	concurrency int // requests at the same time
	watchers    int
	streams     int // watches per connection
	duration    time.Duration
	rate        float64 // writes per second while watches are measured
	label       string  // identifies the run in the results
	accept      string  // media type of watches
	randomSeed  int64
	results     []map[string]any
	replicas    []string // URLs of the servers that share the watchers; if empty, server has all
}

// newClient returns a client with its own connections.
func (l *load) newClient() *http.Client {
	cfg := &tls.Config{}
	if l.caFile != "" {
		pem, err := os.ReadFile(l.caFile)
		check(err)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		cfg.RootCAs = pool
	} else {
		cfg.InsecureSkipVerify = true
	}
	if l.certFile != "" {
		c, err := tls.LoadX509KeyPair(l.certFile, l.keyFile)
		check(err)
		cfg.Certificates = []tls.Certificate{c}
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     cfg,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 256,
		DisableCompression:  true,
	}}
}

// check exits if err is not nil.
func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// request sends a request and returns the status code and body of the response.
func (l *load) request(client *http.Client, method, path, contentType string, body []byte, accept string) (int, []byte, error) {
	req, err := http.NewRequest(method, l.server+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("Accept", accept)
	if l.token != "" {
		req.Header.Set("Authorization", "Bearer "+l.token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// podTemplate is the format of a pod with two containers. podBody fills it.
const podTemplate = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod-%05d","namespace":"bench-%d","labels":{"app":"app-%d","tier":"t%d","pod-template-hash":"%x"},` +
	`"annotations":{"bench/stamp":"0","checksum/config":"%x%x"}},` +
	`"spec":{"nodeName":"node-%d","serviceAccountName":"default","automountServiceAccountToken":false,` +
	`"containers":[{"name":"main","image":"registry.example/team/service-%d:v1.%d.%d",` +
	`"args":["--listen=:8080","--log=info","--workers=%d"],` +
	`"ports":[{"containerPort":8080,"name":"http"},{"containerPort":9090,"name":"metrics"}],` +
	`"env":[%s],` +
	`"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"cpu":"500m","memory":"256Mi"}},` +
	`"readinessProbe":{"httpGet":{"path":"/ready","port":"http"},"periodSeconds":10},` +
	`"livenessProbe":{"httpGet":{"path":"/live","port":"http"},"periodSeconds":20},` +
	`"volumeMounts":[{"name":"config","mountPath":"/etc/app"},{"name":"cache","mountPath":"/cache"}]},` +
	`{"name":"sidecar","image":"registry.example/mesh/proxy:v2.1.%d","ports":[{"containerPort":15001}],` +
	`"resources":{"requests":{"cpu":"10m","memory":"64Mi"}}}],` +
	`"volumes":[{"name":"config","configMap":{"name":"app-%d"}},{"name":"cache","emptyDir":{}}]}}`

// podBody returns the i-th pod, of about 3 KB. Its content depends only on i and the random seed.
func (l *load) podBody(index int) []byte {
	random := rand.New(rand.NewSource(l.randomSeed + int64(index)))
	var env strings.Builder
	for e := range 12 {
		if e > 0 {
			env.WriteByte(',')
		}
		fmt.Fprintf(&env, `{"name":"SETTING_%d","value":"value-%x-%x"}`, e, random.Int63(), random.Int63())
	}
	return fmt.Appendf(nil, podTemplate,
		index, index%namespaces, index%50, index%3, random.Int31(), // name, namespace and labels
		random.Int63(), random.Int63(), // annotation
		index%nodes, index%50, random.Intn(20), random.Intn(20), 1+random.Intn(8), // node, image and arguments
		env.String(), random.Intn(9), index%50) // variables, sidecar and volume
}

// callTimer measures calls. Its zero value is ready for use by one goroutine.
type callTimer struct {
	latencies []float64 // ms
	errs      int
}

// call calls f(i) and records its duration. It prints the first errors only.
func (t *callTimer) call(f func(i int) error, i int) {
	const printedErrors = 2
	start := time.Now()
	if err := f(i); err != nil {
		t.errs++
		if t.errs <= printedErrors {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
	t.latencies = append(t.latencies, float64(time.Since(start).Microseconds())/1000)
}

// runWorkers runs work in a number of goroutines, each with its own timer, and returns the sum of
// their results.
func runWorkers(count int, work func(worker int, t *callTimer)) (latencies []float64, errs int) {
	timers := make([]callTimer, count)
	var wg sync.WaitGroup
	for w := range timers {
		wg.Go(func() { work(w, &timers[w]) })
	}
	wg.Wait()
	for _, t := range timers {
		latencies = append(latencies, t.latencies...)
		errs += t.errs
	}
	return latencies, errs
}

// runConcurrently calls f once with each of 0 to total-1 from a number of goroutines. It returns the
// durations in ms and the number of errors.
func runConcurrently(total, concurrency int, f func(i int) error) (latencies []float64, errs int) {
	var next atomic.Int64
	return runWorkers(concurrency, func(_ int, t *callTimer) {
		for {
			i := int(next.Add(1)) - 1
			if i >= total {
				return
			}
			t.call(f, i)
		}
	})
}

// createPods creates the namespaces and l.objectCount pods.
func (l *load) createPods(client *http.Client) {
	// A namespace may exist already, so these responses do not matter.
	for i := range namespaces {
		l.request(client, "POST", "/api/v1/namespaces", "application/json",
			[]byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bench-%d"}}`, i)), "application/json")
	}
	for i := range namespaces {
		l.request(client, "POST", fmt.Sprintf("/api/v1/namespaces/bench-%d/serviceaccounts", i), "application/json",
			[]byte(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`), "application/json")
	}
	before, start := l.readUsage(), time.Now()
	latencies, errs := runConcurrently(l.objectCount, l.concurrency, func(i int) error {
		code, body, err := l.request(client, "POST", fmt.Sprintf("/api/v1/namespaces/bench-%d/pods", i%namespaces),
			"application/json", l.podBody(i), "application/json")
		if err == nil && code != 201 && code != 200 {
			err = fmt.Errorf("create pod %d: %d %.300s", i, code, body)
		}
		return err
	})
	l.addResult("create", before, l.objectCount, time.Since(start).Seconds(), latencies, map[string]any{"errors": errs})
}

// runForDuration calls f from a number of goroutines for l.duration. Each call has another i. It
// returns the number of calls, the elapsed seconds, the durations of the calls in ms and the number
// of errors.
func (l *load) runForDuration(concurrency int,
	task func(i int) error) (calls int, seconds float64, latencies []float64, errs int) {
	start := time.Now()
	stop := start.Add(l.duration)
	latencies, errs = runWorkers(concurrency, func(worker int, t *callTimer) {
		for i := worker; time.Now().Before(stop); i += concurrency {
			t.call(task, i)
		}
	})
	return len(latencies), time.Since(start).Seconds(), latencies, errs
}

// measureRequests measures GET requests of path(0), path(1) and so on. The result has the size in
// bytes of one response.
func (l *load) measureRequests(client *http.Client, name string, concurrency int, path func(i int) string, accept string) {
	l.resetPeak()
	before := l.readUsage()
	var size atomic.Int64
	calls, seconds, latencies, errs := l.runForDuration(concurrency, func(i int) error {
		code, body, err := l.request(client, "GET", path(i), "", nil, accept)
		if err == nil && code != 200 {
			err = fmt.Errorf("%s: %d %.300s", path(i), code, body)
		}
		size.Store(int64(len(body)))
		return err
	})
	l.addResult(name, before, calls, seconds, latencies, map[string]any{"errors": errs, "bytes": size.Load()})
}

// measurePodPatches measures patches of the pods in turn.
func (l *load) measurePodPatches(client *http.Client) {
	before := l.readUsage()
	calls, seconds, latencies, errs := l.runForDuration(l.concurrency, func(i int) error {
		k := i % l.objectCount
		body := []byte(fmt.Sprintf(`{"metadata":{"annotations":{"bench/stamp":"%d"}}}`, time.Now().UnixNano()))
		code, out, err := l.request(client, "PATCH",
			fmt.Sprintf("/api/v1/namespaces/bench-%d/pods/pod-%05d", k%namespaces, k), "application/merge-patch+json",
			body, "application/json")
		if err == nil && code != 200 {
			err = fmt.Errorf("patch: %d %.300s", code, out)
		}
		return err
	})
	l.addResult("patch", before, calls, seconds, latencies, map[string]any{"errors": errs})
}
