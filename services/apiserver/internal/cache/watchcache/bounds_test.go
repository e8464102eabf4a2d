package watchcache_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/storage"
)

// bounded waits until history keeps its bound, which it does after a batch was
// shown to readers.
func (r *rig) bounded(limit float64) {
	r.t.Helper()
	r.sync()
	for deadline := time.Now().Add(10 * time.Second); r.metric("binnacle_watch_cache_history_bytes") > limit; {
		if time.Now().After(deadline) {
			r.t.Fatalf("history takes %v bytes", r.metric("binnacle_watch_cache_history_bytes"))
		}
	}
}

// One tenant's large objects cost nobody's history, not even of the same resource:
// their values are read from the store when somebody needs them.
func TestLargeValuesCostNoHistory(t *testing.T) {
	const limit = 1 << 20
	for _, tc := range []struct {
		name string
		sel  watchcache.Selection
	}{
		{"another tenant's", selection(t, "small", "", "")},
		{"everybody's", watchcache.Selection{}},
		{"who selected it once", selection(t, "", "", nodeField+"=n0")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, newMemStore(), func(c *watchcache.Config) {
				c.HistoryBytes = limit
				verbatim(c)
			})
			for i := range 100 {
				r.store.put(fmt.Sprintf("/registry/pods/small/%d", i%10), onNode("n0"))
			}
			for i := range 70 {
				r.store.put("/registry/pods/large/x", object{Data: strings.Repeat("x", 100_000+i), Fields: map[string]string{nodeField: fmt.Sprintf("n%d", i%2)}}.String())
			}
			r.store.del("/registry/pods/large/x")
			r.bounded(limit)
			got := r.drain(r.watch(watchcache.WatchOptions{Selection: tc.sel, After: 1}))
			if want := modelEvents(r.store, 1, r.store.now(), tc.sel); !slices.Equal(got, want) {
				t.Errorf("told %d events, want %d", len(got), len(want))
			}
			r.wantMetrics(`binnacle_watch_cache_history_forgotten_early_total{resource="pods"} 0`)
			if n := r.metric(`binnacle_watch_cache_history_reduced_total{resource="pods"}`); n < 60 {
				t.Errorf("%v values were given up", n)
			}
			if _, ok := r.pods.SnapshotAt(102, nil); ok {
				t.Error("a state with a value that is not there")
			}
		})
	}
}

// Those who are behind by the same read a value once.
func TestOlderValuesAreShared(t *testing.T) {
	store := newMemStore()
	src := &countedOlder{memStore: store, gate: make(chan struct{})}
	r := newRig(t, store, func(c *watchcache.Config) {
		c.HistoryBytes, c.Older = 1<<17, src
		verbatim(c)
	})
	for i := range 10 {
		store.put("/registry/pods/a/x", object{Data: strings.Repeat("x", 50_000+i)}.String())
	}
	r.bounded(1 << 17)
	var wg sync.WaitGroup
	for range 20 {
		w := r.watch(watchcache.WatchOptions{After: 1})
		wg.Go(func() {
			if evs, err := next(r.ctx, w, make([]watchcache.Event, 0, 1)); err != nil || len(evs) != 1 || len(evs[0].Entry.Stored()) < 50_000 {
				t.Errorf("told %d events, %v", len(evs), err)
			}
		})
	}
	close(src.gate)
	wg.Wait()
	if src.gets == 0 || src.gets > 10 { // who comes late may find it collected
		t.Errorf("read %d times", src.gets)
	}
}

type countedOlder struct {
	*memStore
	gate chan struct{}
	once sync.Mutex
	gets int
}

func (s *countedOlder) Get(ctx context.Context, key string, revision int64) (storage.KeyValue, int64, error) {
	<-s.gate
	s.once.Lock()
	s.gets++
	s.once.Unlock()
	return s.memStore.Get(ctx, key, revision)
}

// Where the store has forgotten too, a watcher that needs the value ends, and
// nobody else.
func TestOlderValuesAreGone(t *testing.T) {
	store := newMemStore()
	r := newRig(t, store, func(c *watchcache.Config) {
		c.HistoryBytes = 1 << 17
		verbatim(c)
	})
	store.put("/registry/pods/small/x", onNode("n"))
	for i := range 10 {
		store.put("/registry/pods/a/x", object{Data: strings.Repeat("x", 50_000+i)}.String())
	}
	r.bounded(1 << 17)
	store.mu.Lock()
	store.compacted = store.revision // without ending the cache's own stream
	store.mu.Unlock()
	if _, err := drain(r.ctx, r.watch(watchcache.WatchOptions{After: 1}), store.now(), 8); !expired(err) {
		t.Errorf("who needs what is gone: %v", err)
	}
	other := r.watch(watchcache.WatchOptions{Selection: selection(t, "small", "", ""), After: 1})
	if got := r.drain(other); len(got) != 1 {
		t.Errorf("another one was told %q", got)
	}
}

// A resource that changes much costs no other one its history.
func TestHistoryIsFair(t *testing.T) {
	const limit = 400_000
	r := newRig(t, newMemStore(), func(c *watchcache.Config) {
		c.HistoryBytes = limit
		c.Resources = append(c.Resources, resource("leases"))
		verbatim(c)
	})
	for i := range 900 {
		r.store.put("/registry/pods/a/x", object{Data: strings.Repeat("x", 1000+i%2)}.String())
		if i%3 == 0 {
			r.store.put("/registry/leases/a/x", object{Data: strings.Repeat("x", 1000+i%2)}.String())
		}
		if i%9 == 0 {
			r.store.put("/registry/nodes/x", object{Data: strings.Repeat("x", 1000+i%2)}.String())
		}
	}
	r.bounded(limit)
	kept := map[string]int{}
	for _, name := range []string{"pods", "leases", "nodes"} {
		s := r.cache.Store(name)
		for after := int64(1); ; after++ {
			w, err := s.Watch(watchcache.WatchOptions{After: after})
			if expired(err) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			evs, err := drain(r.ctx, w, r.store.now(), 100)
			w.Close()
			if err != nil {
				t.Fatal(err)
			}
			kept[name] = len(evs)
			break
		}
	}
	if kept["nodes"] != 100 {
		t.Errorf("%d of 100 changes of the quietest are kept", kept["nodes"])
	}
	if p, l := kept["pods"], kept["leases"]; p < 80 || l < 80 || p > 2*l || l > 2*p {
		t.Errorf("of the others %d and %d are kept", p, l)
	}
	if n := r.metric(`binnacle_watch_cache_history_forgotten_early_total{resource="pods"}`); n < 600 {
		t.Errorf("%v changes were forgotten early", n)
	}
	r.wantMetrics(`binnacle_watch_cache_history_forgotten_early_total{resource="nodes"} 0`)
}

// History is bounded by time and memory, not by number.
func TestHistoryOfManyChanges(t *testing.T) {
	src := &idleSource{batches: make(chan storage.Batch), failed: make(chan error)}
	r := newRig(t, newMemStore(), func(c *watchcache.Config) { c.Source = src })
	const n = 200_000
	b := storage.Batch{Revision: n + 1}
	for i := range int64(n) {
		b.Events = append(b.Events, storage.Event{Type: storage.Updated, Key: fmt.Sprintf("/registry/pods/a/%d", i%1000), Revision: i + 2, CreateRevision: 2, Value: []byte("{}")})
	}
	src.batches <- b
	if err := <-src.failed; err != nil {
		t.Fatal(err)
	}
	w := r.watch(watchcache.WatchOptions{After: 1})
	evs, err := drain(r.ctx, w, n+1, 1000)
	if err != nil || len(evs) != n {
		t.Errorf("told %d events, %v", len(evs), err)
	}
	if per := r.metric("binnacle_watch_cache_history_bytes") / n; per > 400 {
		t.Errorf("%v bytes for a change of a few", per)
	}
}

// A metric says how far back history reaches.
func TestHistorySeconds(t *testing.T) {
	clk := &clock{now: time.Unix(1e9, 0)}
	r := newRig(t, newMemStore(), func(c *watchcache.Config) {
		c.Now, c.HistoryBytes = clk.Now, 100_000
		verbatim(c)
	})
	const line = `binnacle_watch_cache_history_seconds{resource="pods"}`
	clk.advance(10 * time.Second)
	if n := r.metric(line); n != 10 {
		t.Errorf("10 s after the load: %v", n)
	}
	clk.advance(time.Hour)
	if n := r.metric(line); n != 300 {
		t.Errorf("an hour later: %v", n)
	}
	for i := range 300 {
		clk.advance(100 * time.Millisecond)
		r.store.put("/registry/pods/a/x", object{Data: strings.Repeat("x", 1000+i%2)}.String())
		r.sync()
	}
	r.bounded(100_000)
	if n := r.metric(line); n < 4 || n > 15 {
		t.Errorf("with room for some 100 changes of 300 within 30 s: %v", n)
	}
}
