package watchcache_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/storage"
)

// awaitHistoryBytes waits until history takes at most limit bytes. The cache enforces its limit only
// after it has published a batch to readers.
func (r *rig) awaitHistoryBytes(limit float64) {
	r.t.Helper()
	const metric = "binnacle_watch_cache_history_bytes"
	r.awaitWrites()
	deadline := time.Now().Add(10 * time.Second)
	for r.metric(metric) > limit {
		if time.Now().After(deadline) {
			r.t.Fatalf("history takes %v bytes, want at most %v", r.metric(metric), limit)
		}
	}
}

// TestLargeValuesDoNotShortenHistory checks that large objects of one tenant do not shorten the
// history of others. Their older values are read from the store when a watcher needs them.
func TestLargeValuesDoNotShortenHistory(t *testing.T) {
	const limit = 1 << 20 // space for about 10 of the 70 large values
	for _, test := range []struct {
		name string
		sel  objects.Selection
	}{
		{name: "watch of another tenant", sel: selection(t, "small", "", "")},
		{name: "watch of all", sel: objects.Selection{}},
		{name: "watch of a field value that the object had", sel: selection(t, "", "", nodeField+"=n0")},
	} {
		t.Run(test.name, func(t *testing.T) {
			rig := newRig(t, newMemStore(), func(c *watchcache.Config) {
				c.HistoryBytes = limit
				keepValuesAsStored(c)
			})
			// One tenant writes small objects. Then another one writes a large object often.
			for i := range 100 {
				rig.store.putKey(fmt.Sprintf("/registry/pods/small/%d", i%10), podOnNode("n0"))
			}
			for i := range 70 {
				rig.store.putKey("/registry/pods/large/x", object{
					Data:   strings.Repeat("x", 100_000+i),
					Fields: map[string]string{nodeField: fmt.Sprintf("n%d", i%2)},
				}.String())
			}
			rig.store.deleteKey("/registry/pods/large/x")
			rig.awaitHistoryBytes(limit)

			// A watcher receives all changes, although history has dropped most large values.
			got := rig.drain(rig.watch(watchcache.WatchOptions{Selection: test.sel, AfterRevision: 1}))
			if want := modelEvents(rig.store, 1, rig.store.newestRevision(), test.sel); !slices.Equal(got, want) {
				t.Errorf("got %d events, want %d", len(got), len(want))
			}
			rig.wantMetrics(`binnacle_watch_cache_history_forgotten_early_total{resource="pods"} 0`)
			if n := rig.metric(`binnacle_watch_cache_history_reduced_total{resource="pods"}`); n < 60 {
				t.Errorf("%v values were dropped from history, want at least 60", n)
			}
			if _, ok := rig.pods.SnapshotAt(102, nil); ok {
				t.Error("SnapshotAt before the dropped value: got a snapshot, want none")
			}
		})
	}
}

// TestWatchersShareReadsOfOlderValues checks that watchers that need the same older value share one
// read of it.
func TestWatchersShareReadsOfOlderValues(t *testing.T) {
	store := newMemStore()
	src := &countingHistoryReader{memStore: store, gate: make(chan struct{})}
	rig := newRig(t, store, func(c *watchcache.Config) {
		c.HistoryBytes = 1 << 17
		c.HistoryReader = src
		keepValuesAsStored(c)
	})
	for i := range 10 {
		store.putKey("/registry/pods/a/x", object{Data: strings.Repeat("x", 50_000+i)}.String())
	}
	rig.awaitHistoryBytes(1 << 17)
	var wg sync.WaitGroup
	for range 20 {
		w := rig.watch(watchcache.WatchOptions{AfterRevision: 1})
		wg.Go(func() {
			evs, err := nextEvents(rig.ctx, w, make([]watchcache.Event, 0, 1))
			if err != nil || len(evs) != 1 || len(evs[0].Entry.Stored()) < 50_000 {
				t.Errorf("got %d events, %v, want 1", len(evs), err)
			}
		})
	}
	close(src.gate)
	wg.Wait()
	if src.gets == 0 || src.gets > 10 { // a late watcher may find that the value was released
		t.Errorf("read older values %d times, want 1 to 10", src.gets)
	}
}

// countingHistoryReader counts the reads of older values, which wait for the gate.
type countingHistoryReader struct {
	*memStore
	gate chan struct{}
	mu   sync.Mutex // guards gets
	gets int
}

func (s *countingHistoryReader) Get(ctx context.Context, key string, revision int64) (storage.KeyValue, int64, error) {
	<-s.gate
	s.mu.Lock()
	s.gets++
	s.mu.Unlock()
	return s.memStore.Get(ctx, key, revision)
}

// TestWatcherExpiresWhenOlderValueIsCompacted checks that if the store has compacted the older
// value, only the watchers that need it expire.
func TestWatcherExpiresWhenOlderValueIsCompacted(t *testing.T) {
	store := newMemStore()
	rig := newRig(t, store, func(c *watchcache.Config) {
		c.HistoryBytes = 1 << 17
		keepValuesAsStored(c)
	})
	store.putKey("/registry/pods/small/x", podOnNode("n"))
	for i := range 10 {
		store.putKey("/registry/pods/a/x", object{Data: strings.Repeat("x", 50_000+i)}.String())
	}
	rig.awaitHistoryBytes(1 << 17)
	store.mu.Lock()
	store.compacted = store.revision // without ending the cache's own stream
	store.mu.Unlock()
	if _, err := drain(rig.ctx, rig.watch(watchcache.WatchOptions{AfterRevision: 1}), store.newestRevision(), 8); !isExpired(err) {
		t.Errorf("watcher that needs a compacted value: got %v, want ExpiredError", err)
	}
	other := rig.watch(watchcache.WatchOptions{Selection: selection(t, "small", "", ""), AfterRevision: 1})
	if got := rig.drain(other); len(got) != 1 {
		t.Errorf("unrelated watcher: got %q, want 1 event", got)
	}
}

// TestBusyResourceDoesNotEvictHistoryOfOthers checks that a resource with many changes does not
// shorten the history of others.
func TestBusyResourceDoesNotEvictHistoryOfOthers(t *testing.T) {
	const limit = 400_000 // bytes; the 1,300 changes take about 1.3 MB
	rig := newRig(t, newMemStore(), func(c *watchcache.Config) {
		c.HistoryBytes = limit
		c.Resources = append(c.Resources, resourceConfig("leases"))
		keepValuesAsStored(c)
	})
	for i := range 900 {
		rig.store.putKey("/registry/pods/a/x", object{Data: strings.Repeat("x", 1000+i%2)}.String())
		if i%3 == 0 {
			rig.store.putKey("/registry/leases/a/x", object{Data: strings.Repeat("x", 1000+i%2)}.String())
		}
		if i%9 == 0 {
			rig.store.putKey("/registry/nodes/x", object{Data: strings.Repeat("x", 1000+i%2)}.String())
		}
	}
	rig.awaitHistoryBytes(limit)

	// For each resource, count the changes after the oldest revision from which a watch can start.
	kept := map[string]int{}
	for _, name := range []string{"pods", "leases", "nodes"} {
		s := rig.cache.Store(name)
		for after := int64(1); ; after++ {
			w, err := s.Watch(watchcache.WatchOptions{AfterRevision: after})
			if isExpired(err) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			evs, err := drain(rig.ctx, w, rig.store.newestRevision(), 100)
			w.Close()
			if err != nil {
				t.Fatal(err)
			}
			kept[name] = len(evs)
			break
		}
	}

	// The resource with few changes keeps all of them. The two busy ones share the rest.
	if kept["nodes"] != 100 {
		t.Errorf("%d changes of nodes are kept, want 100", kept["nodes"])
	}
	if p, l := kept["pods"], kept["leases"]; p < 80 || l < 80 || p > 2*l || l > 2*p {
		t.Errorf("%d changes of pods and %d of leases are kept, want similar numbers of at least 80", p, l)
	}
	if n := rig.metric(`binnacle_watch_cache_history_forgotten_early_total{resource="pods"}`); n < 600 {
		t.Errorf("%v changes of pods were forgotten early, want at least 600", n)
	}
	rig.wantMetrics(`binnacle_watch_cache_history_forgotten_early_total{resource="nodes"} 0`)
}

// TestHistoryIsNotBoundedByCount checks that history is bounded by time and memory, not by the
// number of changes.
func TestHistoryIsNotBoundedByCount(t *testing.T) {
	src := &idleSource{batches: make(chan storage.Batch), failed: make(chan error)}
	rig := newRig(t, newMemStore(), func(c *watchcache.Config) { c.Source = src })
	const n = 200_000
	b := storage.Batch{Revision: n + 1}
	for i := range int64(n) {
		b.Events = append(b.Events, storage.Event{
			Type:           storage.Updated,
			Key:            fmt.Sprintf("/registry/pods/a/%d", i%1000),
			Revision:       i + 2,
			CreateRevision: 2,
			Value:          []byte("{}"),
		})
	}
	src.batches <- b
	if err := <-src.failed; err != nil {
		t.Fatal(err)
	}
	w := rig.watch(watchcache.WatchOptions{AfterRevision: 1})
	evs, err := drain(rig.ctx, w, n+1, 1000)
	if err != nil || len(evs) != n {
		t.Errorf("got %d events, %v, want %d", len(evs), err, n)
	}
	if per := rig.metric("binnacle_watch_cache_history_bytes") / n; per > 400 {
		t.Errorf("a change takes %v bytes of history, want at most 400", per)
	}
}

// TestHistorySecondsMetricShowsAgeOfHistory checks that the metric reports how far back history reaches.
func TestHistorySecondsMetricShowsAgeOfHistory(t *testing.T) {
	clk := &clock{now: time.Unix(1e9, 0)}
	rig := newRig(t, newMemStore(), func(c *watchcache.Config) {
		c.Now = clk.Now
		c.HistoryBytes = 100_000
		keepValuesAsStored(c)
	})
	const line = `binnacle_watch_cache_history_seconds{resource="pods"}`
	clk.advance(10 * time.Second)
	if n := rig.metric(line); n != 10 {
		t.Errorf("10 s after the load: got %v, want 10", n)
	}
	clk.advance(time.Hour)
	if n := rig.metric(line); n != 300 {
		t.Errorf("an hour later: got %v, want 300", n)
	}
	for i := range 300 {
		clk.advance(100 * time.Millisecond)
		rig.store.putKey("/registry/pods/a/x", object{Data: strings.Repeat("x", 1000+i%2)}.String())
		rig.awaitWrites()
	}
	rig.awaitHistoryBytes(100_000)
	if n := rig.metric(line); n < 4 || n > 15 {
		t.Errorf("with space for about 100 of 300 changes in 30 s: got %v, want about 10", n)
	}
}
