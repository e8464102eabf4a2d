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

// objects describe the watched and patched objects: the path of their list and of the k-th object.
type objects struct {
	list string
	at   func(k int) string
}

func pods() objects {
	return objects{"/api/v1/pods", func(k int) string { return fmt.Sprintf("/api/v1/namespaces/bench-%d/pods/pod-%05d", k%namespaces, k) }}
}

// watched returns the server of a watch connection.
func (l *load) watched(connection int) string {
	if len(l.replicas) == 0 {
		return l.server
	}
	return l.replicas[connection%len(l.replicas)]
}

// watch opens w watch streams, patches objects at the given rate and measures the
// time from just before the PATCH was sent until each watcher read the event.
func (l *load) watch(c *http.Client, name string, of objects, path func(w int) string) {
	var opened, delivered, closed atomic.Int64
	var mu sync.Mutex
	var lat []float64
	stop := make(chan struct{})
	_, body, err := l.request(c, "GET", of.list+"?limit=1", "", nil, "application/json")
	check(err)
	var list struct {
		Metadata struct{ ResourceVersion string } `json:"metadata"`
	}
	check(json.Unmarshal(body, &list))
	idle := l.measure()
	// Servers end watches after half an hour to an hour by default.
	lasting := fmt.Sprintf("&timeoutSeconds=%.0f", (l.dur + 10*time.Minute).Seconds())
	var cl *http.Client
	for w := 0; w < l.watchers; w++ {
		if w%l.streams == 0 {
			cl = l.newClient()
			// Without this request all watches would begin with a handshake, and only one
			// connection would be used.
			if resp, err := cl.Get(l.watched(w/l.streams) + "/readyz"); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		req, _ := http.NewRequest("GET", l.watched(w/l.streams)+path(w)+"&resourceVersion="+list.Metadata.ResourceVersion+lasting, nil)
		req.Header.Set("Accept", l.accept)
		if l.token != "" {
			req.Header.Set("Authorization", "Bearer "+l.token)
		}
		go func(cl *http.Client) {
			resp, err := cl.Do(req)
			if err != nil || resp.StatusCode != 200 {
				fmt.Fprintln(os.Stderr, "bench: watch:", err, resp)
				closed.Add(1)
				return
			}
			opened.Add(1)
			go func() { <-stop; resp.Body.Close() }()
			buf := make([]byte, 64<<10)
			var keep []byte
			marker := []byte(`"bench/stamp":"`)
			var mine []float64
			for {
				k, err := resp.Body.Read(buf)
				now := time.Now().UnixNano()
				keep = append(keep, buf[:k]...)
				for {
					j := bytes.Index(keep, marker)
					if j < 0 || len(keep) < j+len(marker)+20 {
						break
					}
					rest := keep[j+len(marker):]
					e := bytes.IndexByte(rest, '"')
					if e < 0 {
						break
					}
					if ts, err := strconv.ParseInt(string(rest[:e]), 10, 64); err == nil && ts > 0 {
						mine = append(mine, float64(now-ts)/1e6)
						delivered.Add(1)
					}
					keep = keep[j+len(marker)+e:]
				}
				if len(keep) > 8<<10 && !bytes.Contains(keep, marker) {
					keep = append(keep[:0], keep[len(keep)-64:]...)
				}
				if err != nil {
					break
				}
			}
			mu.Lock()
			lat = append(lat, mine...)
			mu.Unlock()
			closed.Add(1)
		}(cl)
	}
	for t := time.Now(); opened.Load()+closed.Load() < int64(l.watchers) && time.Since(t) < 60*time.Second; {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	open := l.measure()
	perWatcher := 0.0
	for k := range open.rss {
		perWatcher += (open.rss[k] - idle.rss[k]) * 1024
	}
	l.resetPeak()
	b := l.measure()
	t0 := time.Now()
	tick := time.NewTicker(time.Duration(float64(time.Second) / l.rate))
	var wg sync.WaitGroup
	writes := 0
	var werr atomic.Int64
	for time.Since(t0) < l.dur {
		<-tick.C
		k := writes % l.n
		writes++
		wg.Add(1)
		go func() {
			defer wg.Done()
			body := []byte(fmt.Sprintf(`{"metadata":{"annotations":{"bench/stamp":"%d"}}}`, time.Now().UnixNano()))
			code, _, err := l.request(c, "PATCH", of.at(k), "application/merge-patch+json", body, "application/json")
			if err != nil || code != 200 {
				werr.Add(1)
			}
		}()
	}
	wg.Wait()
	last := int64(-1)
	for i := 0; i < 100 && last != delivered.Load(); i++ {
		last = delivered.Load()
		time.Sleep(500 * time.Millisecond)
	}
	secs := time.Since(t0).Seconds()
	early := closed.Load()
	got := delivered.Load()
	bu := b
	after := l.measure()
	total := 0.0
	for k := range after.cpu {
		total += after.cpu[k] - bu.cpu[k]
	}
	close(stop)
	time.Sleep(2 * time.Second)
	mu.Lock()
	defer mu.Unlock()
	l.report(name, bu, int(got), secs, lat, map[string]any{"watchers": l.watchers, "opened": opened.Load(), "closed_early": early, "writes": writes, "write_errors": werr.Load(), "kib_per_watcher": round(perWatcher / float64(l.watchers)), "cpu_s_per_million_deliveries": round(total / float64(max(got, 1)) * 1e6), "cpu_ms_per_write": round(total * 1000 / float64(max(writes, 1)))})
}
