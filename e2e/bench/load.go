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

// The distribution of the seeded objects.
const (
	namespaces = 10
	nodes      = 100
)

// load describes a server and the load on it, and collects results.
type load struct {
	server                                      string
	caFile, certFile, keyFile, token            string
	pids                                        string // comma-separated name=pid of the processes to account
	objectCount, concurrency, watchers, streams int
	duration                                    time.Duration
	rate                                        float64
	label, accept                               string
	randomSeed                                  int64
	results                                     []map[string]any
	replicas                                    []string // over which watchers are distributed, if there are any
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
func (l *load) request(c *http.Client, method, path, contentType string, body []byte, accept string) (int, []byte, error) {
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
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// podBody returns the i-th pod, of about 3 KB. Its content depends only on i and the random seed.
func (l *load) podBody(i int) []byte {
	r := rand.New(rand.NewSource(l.randomSeed + int64(i)))
	var env strings.Builder
	for e := 0; e < 12; e++ {
		if e > 0 {
			env.WriteByte(',')
		}
		fmt.Fprintf(&env, `{"name":"SETTING_%d","value":"value-%x-%x"}`, e, r.Int63(), r.Int63())
	}
	return []byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod-%05d","namespace":"bench-%d","labels":{"app":"app-%d","tier":"t%d","pod-template-hash":"%x"},"annotations":{"bench/stamp":"0","checksum/config":"%x%x"}},"spec":{"nodeName":"node-%d","serviceAccountName":"default","automountServiceAccountToken":false,"containers":[{"name":"main","image":"registry.example/team/service-%d:v1.%d.%d","args":["--listen=:8080","--log=info","--workers=%d"],"ports":[{"containerPort":8080,"name":"http"},{"containerPort":9090,"name":"metrics"}],"env":[%s],"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"cpu":"500m","memory":"256Mi"}},"readinessProbe":{"httpGet":{"path":"/ready","port":"http"},"periodSeconds":10},"livenessProbe":{"httpGet":{"path":"/live","port":"http"},"periodSeconds":20},"volumeMounts":[{"name":"config","mountPath":"/etc/app"},{"name":"cache","mountPath":"/cache"}]},{"name":"sidecar","image":"registry.example/mesh/proxy:v2.1.%d","ports":[{"containerPort":15001}],"resources":{"requests":{"cpu":"10m","memory":"64Mi"}}}],"volumes":[{"name":"config","configMap":{"name":"app-%d"}},{"name":"cache","emptyDir":{}}]}}`,
		i, i%namespaces, i%50, i%3, r.Int31(), r.Int63(), r.Int63(), i%nodes, i%50, r.Intn(20), r.Intn(20),
		1+r.Intn(8), env.String(), r.Intn(9), i%50))
}

// runConcurrently calls f with 0 to total-1 from c goroutines. It returns the durations in ms and
// the number of errors.
func runConcurrently(total, c int, f func(i int) error) (latencies []float64, errs int) {
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := 0; w < c; w++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var workerLatencies []float64
			workerErrors := 0
			for {
				i := int(next.Add(1)) - 1
				if i >= total {
					break
				}
				t := time.Now()
				if err := f(i); err != nil {
					workerErrors++
					if workerErrors < 3 {
						fmt.Fprintln(os.Stderr, "bench:", err)
					}
				}
				workerLatencies = append(workerLatencies, float64(time.Since(t).Microseconds())/1000)
			}
			mu.Lock()
			latencies = append(latencies, workerLatencies...)
			errs += workerErrors
			mu.Unlock()
		}()
	}
	wg.Wait()
	return
}

// createPods creates the namespaces and l.objectCount pods.
func (l *load) createPods(c *http.Client) {
	for i := 0; i < namespaces; i++ {
		l.request(c, "POST", "/api/v1/namespaces", "application/json",
			[]byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bench-%d"}}`, i)), "application/json")
	}
	for i := 0; i < namespaces; i++ {
		l.request(c, "POST", fmt.Sprintf("/api/v1/namespaces/bench-%d/serviceaccounts", i), "application/json",
			[]byte(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`), "application/json")
	}
	b := l.readUsage()
	t := time.Now()
	lat, errs := runConcurrently(l.objectCount, l.concurrency, func(i int) error {
		code, body, err := l.request(c, "POST", fmt.Sprintf("/api/v1/namespaces/bench-%d/pods", i%namespaces),
			"application/json", l.podBody(i), "application/json")
		if err == nil && code != 201 && code != 200 {
			err = fmt.Errorf("create pod %d: %d %.300s", i, code, body)
		}
		return err
	})
	l.addResult("create", b, l.objectCount, time.Since(t).Seconds(), lat, map[string]any{"errors": errs})
}

// runForDuration calls f from c goroutines for l.duration. Each call has another i. latencies are
// in ms.
func (l *load) runForDuration(c int, f func(i int) error) (ops int, secs float64, latencies []float64, errs int) {
	stop := time.Now().Add(l.duration)
	var mu sync.Mutex
	var wg sync.WaitGroup
	t0 := time.Now()
	for w := 0; w < c; w++ {
		wg.Add(1)
		go func(w int) {
			defer wg.Done()
			var workerLatencies []float64
			workerErrors, i := 0, w
			for time.Now().Before(stop) {
				t := time.Now()
				if err := f(i); err != nil {
					workerErrors++
					if workerErrors < 3 {
						fmt.Fprintln(os.Stderr, "bench:", err)
					}
				}
				workerLatencies = append(workerLatencies, float64(time.Since(t).Microseconds())/1000)
				i += c
			}
			mu.Lock()
			latencies = append(latencies, workerLatencies...)
			errs += workerErrors
			mu.Unlock()
		}(w)
	}
	wg.Wait()
	return len(latencies), time.Since(t0).Seconds(), latencies, errs
}

// measureRequests measures GET requests of path(0), path(1) and so on.
func (l *load) measureRequests(c *http.Client, name string, concurrency int, path func(i int) string, accept string) {
	l.resetPeak()
	b := l.readUsage()
	var size atomic.Int64
	ops, secs, lat, errs := l.runForDuration(concurrency, func(i int) error {
		code, body, err := l.request(c, "GET", path(i), "", nil, accept)
		if err == nil && code != 200 {
			err = fmt.Errorf("%s: %d %.300s", path(i), code, body)
		}
		size.Store(int64(len(body)))
		return err
	})
	l.addResult(name, b, ops, secs, lat, map[string]any{"errors": errs, "bytes": size.Load()})
}

// measurePodPatches measures patches of the pods in turn.
func (l *load) measurePodPatches(c *http.Client) {
	b := l.readUsage()
	ops, secs, lat, errs := l.runForDuration(l.concurrency, func(i int) error {
		k := i % l.objectCount
		body := []byte(fmt.Sprintf(`{"metadata":{"annotations":{"bench/stamp":"%d"}}}`, time.Now().UnixNano()))
		code, out, err := l.request(c, "PATCH",
			fmt.Sprintf("/api/v1/namespaces/bench-%d/pods/pod-%05d", k%namespaces, k), "application/merge-patch+json",
			body, "application/json")
		if err == nil && code != 200 {
			err = fmt.Errorf("patch: %d %.300s", code, out)
		}
		return err
	})
	l.addResult("patch", b, ops, secs, lat, map[string]any{"errors": errs})
}
