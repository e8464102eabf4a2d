package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// watchedObjects describe the objects that are watched and patched.
type watchedObjects struct {
	listPath string
	path     func(k int) string // of the k-th object
}

func watchedPods() watchedObjects {
	return watchedObjects{listPath: "/api/v1/pods", path: func(k int) string {
		return fmt.Sprintf("/api/v1/namespaces/bench-%d/pods/pod-%05d", k%namespaces, k)
	}}
}

// watchServer returns the server of a watch connection.
func (l *load) watchServer(connection int) string {
	if len(l.replicas) == 0 {
		return l.server
	}
	return l.replicas[connection%len(l.replicas)]
}

// watchStreams counts the open watches and the events that they deliver.
type watchStreams struct {
	opened, closed, delivered atomic.Int64
	stop                      chan struct{} // closed to close the watches

	mu        sync.Mutex
	latencies []float64 // ms from the write to the event, of closed watches
}

// measureWatches opens l.watchers watches and patches objects at the rate l.rate. It measures the
// time from just before each patch was sent until each watcher read the event. watchPath returns
// the path of the w-th watch.
func (l *load) measureWatches(client *http.Client, name string, objects watchedObjects, watchPath func(w int) string) {
	revision := l.listRevision(client, objects.listPath)
	idle := l.readUsage()
	streams := l.openWatches(revision, watchPath)
	kibPerWatcher := 0.0
	for process, resident := range l.readUsage().resident {
		kibPerWatcher += (resident - idle.resident[process]) * 1024 / float64(l.watchers)
	}
	l.resetPeak()
	before, start := l.readUsage(), time.Now()
	writes, failed := l.patchAtRate(client, objects)
	streams.waitUntilQuiet()
	elapsed := time.Since(start).Seconds()
	closedEarly, delivered := streams.closed.Load(), streams.delivered.Load()
	after := l.readUsage()
	cpu := 0.0
	for process := range after.cpu {
		cpu += after.cpu[process] - before.cpu[process]
	}
	close(streams.stop)
	time.Sleep(2 * time.Second) // the watches close and add their latencies
	streams.mu.Lock()
	defer streams.mu.Unlock()
	l.addResult(name, before, int(delivered), elapsed, streams.latencies, map[string]any{
		"watchers":                     l.watchers,
		"opened":                       streams.opened.Load(),
		"closed_early":                 closedEarly,
		"writes":                       writes,
		"write_errors":                 failed,
		"kib_per_watcher":              roundToThousandths(kibPerWatcher),
		"cpu_s_per_million_deliveries": roundToThousandths(cpu / float64(max(delivered, 1)) * 1e6),
		"cpu_ms_per_write":             roundToThousandths(cpu * 1000 / float64(max(writes, 1))),
	})
}

// listRevision returns the resource version of a list.
func (l *load) listRevision(c *http.Client, path string) string {
	_, body, err := l.request(c, "GET", path+"?limit=1", "", nil, "application/json")
	check(err)
	var list struct {
		Metadata struct{ ResourceVersion string } `json:"metadata"`
	}
	check(json.Unmarshal(body, &list))
	return list.Metadata.ResourceVersion
}

// openWatches opens l.watchers watches from a resource version, l.streams per connection, and waits
// until the server has responded to them.
func (l *load) openWatches(revision string, watchPath func(w int) string) *watchStreams {
	streams := &watchStreams{stop: make(chan struct{})}
	// Servers close watches after half an hour to an hour by default.
	timeout := fmt.Sprintf("&timeoutSeconds=%.0f", (l.duration + 10*time.Minute).Seconds())
	var client *http.Client
	for w := range l.watchers {
		server := l.watchServer(w / l.streams)
		if w%l.streams == 0 {
			client = l.newClient()
			// Without this request all watches would begin with a handshake, and only one
			// connection would be used.
			if resp, err := client.Get(server + "/readyz"); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		req, _ := http.NewRequest("GET", server+watchPath(w)+"&resourceVersion="+revision+timeout, nil)
		req.Header.Set("Accept", l.accept)
		if l.token != "" {
			req.Header.Set("Authorization", "Bearer "+l.token)
		}
		go streams.watch(client, req)
	}
	for start := time.Now(); streams.opened.Load()+streams.closed.Load() < int64(l.watchers) &&
		time.Since(start) < 60*time.Second; {
		time.Sleep(50 * time.Millisecond) // polling interval
	}
	time.Sleep(2 * time.Second) // the server's memory settles
	return streams
}

// watch sends a watch request and records the latency of each event until the watch closes.
func (s *watchStreams) watch(client *http.Client, req *http.Request) {
	defer s.closed.Add(1)
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != 200 {
		fmt.Fprintln(os.Stderr, "bench: watch:", err, resp)
		return
	}
	s.opened.Add(1)
	go func() { <-s.stop; resp.Body.Close() }()
	var latencies []float64
	readStamps(resp.Body, func(stamp, now int64) {
		latencies = append(latencies, float64(now-stamp)/1e6)
		s.delivered.Add(1)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latencies = append(s.latencies, latencies...)
}

// stampMarker precedes the time of a write in an event, in Unix nanoseconds:
// "bench/stamp":"1700000000000000000".
var stampMarker = []byte(`"bench/stamp":"`)

// readStamps reads a watch until an error. For each positive stamp it calls received with the stamp
// and the time at which the chunk with the stamp was read.
func readStamps(body io.Reader, received func(stamp, now int64)) {
	buf := make([]byte, 64<<10)
	var unread []byte // may begin or end within an event
	for {
		n, err := body.Read(buf)
		now := time.Now().UnixNano()
		unread = append(unread, buf[:n]...)
		for {
			i := bytes.Index(unread, stampMarker)
			if i < 0 || len(unread) < i+len(stampMarker)+20 { // the stamp may be incomplete
				break
			}
			text, rest, complete := bytes.Cut(unread[i+len(stampMarker):], []byte{'"'})
			if !complete {
				break
			}
			if stamp, err := strconv.ParseInt(string(text), 10, 64); err == nil && stamp > 0 {
				received(stamp, now)
			}
			unread = rest
		}
		// Without a marker only the end matters, which may be the beginning of one.
		if len(unread) > 8<<10 && !bytes.Contains(unread, stampMarker) {
			unread = append(unread[:0], unread[len(unread)-64:]...)
		}
		if err != nil {
			return
		}
	}
}

// patchAtRate patches the objects in turn at the rate l.rate for l.duration, and waits for the
// responses.
func (l *load) patchAtRate(client *http.Client, objects watchedObjects) (writes int, failed int64) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / l.rate))
	defer tick.Stop()
	var wg sync.WaitGroup
	var failures atomic.Int64
	for start := time.Now(); time.Since(start) < l.duration; {
		<-tick.C
		k := writes % l.objectCount
		writes++
		wg.Go(func() {
			body := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench/stamp":"%d"}}}`, time.Now().UnixNano())
			code, _, err := l.request(client, "PATCH", objects.path(k), "application/merge-patch+json", body, "application/json")
			if err != nil || code != 200 {
				failures.Add(1)
			}
		})
	}
	wg.Wait()
	return writes, failures.Load()
}

// waitUntilQuiet waits until no event was delivered for half a second, for at most 50 seconds.
func (s *watchStreams) waitUntilQuiet() {
	last := int64(-1)
	for i := 0; i < 100 && last != s.delivered.Load(); i++ {
		last = s.delivered.Load()
		time.Sleep(500 * time.Millisecond)
	}
}
