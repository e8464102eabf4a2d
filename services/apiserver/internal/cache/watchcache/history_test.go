package watchcache_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/libs/clocktest"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// TestHistoryIsForgottenByAge checks that history is forgotten by age, except for the newest
// changes.
func TestHistoryIsForgottenByAge(t *testing.T) {
	clk := &clock{now: time.Unix(1e9, 0)}
	rig := newRig(t, newMemStore(), func(c *watchcache.Config) { c.Now = clk.Now })
	for i := range 500 {
		rig.store.putKey(fmt.Sprintf("/registry/pods/a/%d", i), podOnNode(""))
	}
	rig.awaitWrites()
	clk.advance(4 * time.Minute)
	rig.store.putKey("/registry/pods/a/last", podOnNode(""))
	rig.awaitWrites()
	rig.watch(watchcache.WatchOptions{AfterRevision: 1})
	clk.advance(2 * time.Minute)
	rig.store.putKey("/registry/pods/a/last", podOnNode(""))
	rig.awaitWrites()
	if _, err := rig.pods.Watch(watchcache.WatchOptions{AfterRevision: 350}); !isExpired(err) {
		t.Errorf("watch from 350: got %v, want ExpiredError", err)
	}
	rig.watch(watchcache.WatchOptions{AfterRevision: 420})
}

// TestHistoryAgeIgnoresClockChanges checks that history ages by elapsed time, independent of
// changes of the wall clock.
func TestHistoryAgeIgnoresClockChanges(t *testing.T) {
	read := time.Now()
	var passed, ahead atomic.Int64
	now := func() time.Time {
		return clocktest.Set(t, read.Add(time.Duration(passed.Load())), time.Duration(ahead.Load()))
	}
	rig := newRig(t, newMemStore(), func(c *watchcache.Config) { c.Now = now })
	write := func(n int) {
		for i := range n {
			rig.store.putKey(fmt.Sprintf("/registry/pods/a/%d", i), podOnNode(""))
		}
		rig.awaitWrites()
	}
	write(500)
	ahead.Store(int64(3 * time.Hour))
	write(1)
	rig.watch(watchcache.WatchOptions{AfterRevision: 1})
	ahead.Store(int64(-3 * time.Hour))
	write(1)
	passed.Store(int64(6 * time.Minute))
	write(1)
	if _, err := rig.pods.Watch(watchcache.WatchOptions{AfterRevision: 350}); !isExpired(err) {
		t.Errorf("watch from 350: got %v, want ExpiredError", err)
	}
}

// TestHistoryBytesAreBounded checks that all resources share one limit of bytes of history. The
// largest one loses history first.
func TestHistoryBytesAreBounded(t *testing.T) {
	const limit = 100_000
	rig := newRig(t, newMemStore(), func(c *watchcache.Config) {
		c.HistoryBytes = limit
		keepValuesAsStored(c)
	})
	rig.store.putKey("/registry/nodes/n", podOnNode(""))
	rig.store.putKey("/registry/nodes/n", object{Data: "second"}.String())
	start := rig.store.newestRevision()
	for i := range 300 {
		rig.store.putKey("/registry/pods/a/x", object{Data: strings.Repeat("x", 1000+i)}.String())
	}
	rig.awaitWrites()
	// The cache enforces the limit after it has published a batch to readers.
	deadline := time.Now().Add(10 * time.Second)
	for {
		n := rig.metric("binnacle_watch_cache_history_bytes")
		if n >= limit/4 && n <= limit {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("history takes %v bytes, want %d to %d", n, limit/4, limit)
		}
		runtime.Gosched()
	}
	if _, err := rig.pods.Watch(watchcache.WatchOptions{AfterRevision: start + 100}); !isExpired(err) {
		t.Errorf("watch of forgotten history: got %v, want ExpiredError", err)
	}
	w, err := rig.cache.Store("nodes").Watch(watchcache.WatchOptions{AfterRevision: 1})
	if err != nil {
		t.Fatalf("watch of a small resource: %v", err)
	}
	defer w.Close()
	if got := rig.drain(w); len(got) != 2 {
		t.Errorf("got %q, want 2 events", got)
	}
}

// TestIdleHistoryIsReleased checks that the cache releases the memory of history when no changes
// arrive.
func TestIdleHistoryIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig(t, newMemStore(), nil)
		for i := range 500 {
			rig.store.putKey("/registry/pods/a/x", object{Data: fmt.Sprint(i)}.String())
		}
		rig.awaitWrites()
		if _, ok := rig.pods.SnapshotAt(300, nil); !ok {
			t.Fatal("revision within the log: got no snapshot, want one")
		}
		rig.wantMetrics(`watch_cache_capacity{resource="pods"} 512`)
		<-time.After(6 * time.Minute)
		synctest.Wait()
		rig.wantMetrics(`watch_cache_capacity{resource="pods"} 256`, `watch_cache_capacity_decrease_total{resource="pods"} 1`)
		if _, ok := rig.pods.SnapshotAt(300, nil); ok {
			t.Error("unused snapshot: got it retained, want it released")
		}
		if _, err := rig.pods.Watch(watchcache.WatchOptions{AfterRevision: 400}); !isExpired(err) {
			t.Errorf("watch from 400: got %v, want ExpiredError", err)
		}
		w, err := rig.pods.Watch(watchcache.WatchOptions{AfterRevision: 401})
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
	})
}
