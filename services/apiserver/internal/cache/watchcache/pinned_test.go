package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// largeObject returns an object large enough to show in the estimate of pinned bytes.
func largeObject(i int) string {
	return object{Data: fmt.Sprintf("%06d", i) + strings.Repeat("x", 100_000), Fields: map[string]string{nodeField: "n1"}}.String()
}

// collectGarbage frees unreachable memory. Objects that one collection finds unreachable are
// certainly freed after the next one.
func collectGarbage() {
	for range 3 {
		runtime.GC()
	}
}

// overwriteLargeObjects overwrites n large objects, one after the other, with events writes in all. It
// then drops their former values.
func (r *rig) overwriteLargeObjects(n, events int) {
	r.t.Helper()
	for i := range events {
		r.store.putKey(fmt.Sprintf("/registry/pods/a/%d", i%n), object{Data: fmt.Sprint(i)}.String())
	}
	r.awaitWrites() // before the values are dropped: the cache keeps the last readable version
	r.store.forgetValues()
}

// maxCollections limits the number of collections. It is far more than needed to free unreachable memory.
// The limit is a count because the time depends on the load of the machine.
const maxCollections = 200

// pinnedBytes returns the estimate of pinned bytes once ok accepts it, or the last one.
func (r *rig) pinnedBytes(ok func(float64) bool) (n float64) {
	r.t.Helper()
	for range maxCollections {
		collectGarbage()
		n = r.metric("binnacle_watch_cache_pinned_bytes")
		if ok(n) {
			break
		}
		runtime.Gosched()
	}
	return n
}

// isAtMost returns a condition for pinnedBytes.
func isAtMost(limit float64) func(float64) bool { return func(n float64) bool { return n <= limit } }

// isAtLeast returns a condition for pinnedBytes.
func isAtLeast(limit float64) func(float64) bool { return func(n float64) bool { return n >= limit } }

// events is the number of changes in history.
const events = 200

// newLargeRig returns a rig with n large objects and a short history.
func newLargeRig(t *testing.T, n int) *rig {
	store := newMemStore()
	for i := range n {
		store.putKey(fmt.Sprintf("/registry/pods/a/%d", i), largeObject(i))
	}
	return newRig(t, store, func(c *watchcache.Config) {
		c.LogEvents = events
		keepValuesAsStored(c)
	})
}

// TestPinnedBytesCountsSnapshots checks that the objects of a snapshot are counted as pinned until
// the snapshot is released.
func TestPinnedBytesCountsSnapshots(t *testing.T) {
	rig := newLargeRig(t, 20)
	sn := rig.pods.Snapshot()
	rig.overwriteLargeObjects(20, 2*events)
	if n := rig.pinnedBytes(isAtLeast(1.5e6)); n < 1.5e6 || n > 2.5e6 {
		t.Errorf("snapshot of 2 MB: got %.0f pinned bytes, want 1.5 to 2.5 MB", n)
	}
	runtime.KeepAlive(sn)
	sn = watchcache.Snapshot{}
	if n := rig.pinnedBytes(isAtMost(0)); n > 0 {
		t.Errorf("%.0f bytes are pinned without a reader, want 0", n)
	}
}

// TestIdleWatcherHoldsNothing checks that an idle watcher pins none of the values that it returned.
func TestIdleWatcherHoldsNothing(t *testing.T) {
	rig := newLargeRig(t, 20)
	sel := selection(t, "", "", nodeField+"=n1")
	watcher := rig.watch(watchcache.WatchOptions{Selection: sel, Initial: watchcache.InitialState})
	received := make(chan int, 100)
	ctx, cancel := context.WithCancel(rig.ctx)
	done := make(chan error, 1)
	go func() {
		buf := make([]watchcache.Event, 0, 64)
		for {
			evs, err := nextEvents(ctx, watcher, buf)
			if err != nil {
				done <- err
				return
			}
			received <- len(evs)
		}
	}()
	wait := func(n int) {
		t.Helper()
		for n > 0 {
			select {
			case k := <-received:
				n -= k
			case err := <-done:
				t.Fatalf("%d events missing: %v", n, err)
			}
		}
	}
	wait(21)
	rig.overwriteLargeObjects(20, 20)
	wait(20) // deletions, because the objects no longer match
	watcher.Trigger()
	for k := range received { // an empty result: the watcher is idle again
		if k == 0 {
			break
		}
	}
	rig.overwriteLargeObjects(20, 2*events)
	if n := rig.pinnedBytes(isAtMost(0)); n > 0 {
		t.Errorf("idle watcher pins %.0f bytes, want 0", n)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestStalledWatcherExpires checks that a watcher whose owner stalls expires when history drops its
// position, and that the events that it was about to return are released.
func TestStalledWatcherExpires(t *testing.T) {
	for _, test := range []struct {
		name string
		opts watchcache.WatchOptions
		read int // events before the owner stalls
	}{
		{name: "initial state", opts: watchcache.WatchOptions{Initial: watchcache.InitialState}, read: 1},
		{
			name: "initial state of a namespace",
			opts: watchcache.WatchOptions{Selection: objects.Selection{Namespace: "a"}, Initial: watchcache.InitialState},
			read: 1,
		},
		{name: "behind", opts: watchcache.WatchOptions{AfterRevision: 1}, read: 1},
		{name: "active", opts: watchcache.WatchOptions{AfterRevision: 21}, read: 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			rig := newLargeRig(t, 20)
			var calls atomic.Int32
			called := make(chan struct{}, 1)
			test.opts.OnExpired = func() { calls.Add(1); called <- struct{}{} }
			if test.name == "behind" { // history starts with the load
				rig.store.putKey("/registry/pods/a/more", largeObject(0))
				test.opts.AfterRevision = rig.awaitWrites() - 1
			}
			watcher := rig.watch(test.opts)
			for range test.read {
				if evs, err := nextEvents(rig.ctx, watcher, make([]watchcache.Event, 0, 1)); err != nil || len(evs) != 1 {
					t.Fatalf("Next = %q, %v, want 1 event", formatEvents(evs), err)
				}
			}
			rig.overwriteLargeObjects(20, 2*events)
			select {
			case <-called:
			case <-time.After(time.Minute):
				t.Fatal("got no call of OnExpired, want one")
			}
			if n := rig.pinnedBytes(isAtMost(1e5)); n > 1e5 { // the event that it returned
				t.Errorf("%.0f bytes are pinned, want at most 1e5", n)
			}
			if evs, err := nextEvents(rig.ctx, watcher, nil); !isExpired(err) {
				t.Errorf("Next after the expiration: got %q, %v, want ExpiredError", formatEvents(evs), err)
			}
			rig.wantMetrics(`apiserver_terminated_watchers_total{resource="pods"} 1`)
			watcher.Close()
			rig.overwriteLargeObjects(20, events)
			if n := calls.Load(); n != 1 {
				t.Errorf("OnExpired was called %d times, want 1", n)
			}
		})
	}
}

// TestStalledWatcherExpiresUnderMemoryPressure checks that a stalled watcher expires while history
// still has its position, and that a slow watcher that makes progress does not.
func TestStalledWatcherExpiresUnderMemoryPressure(t *testing.T) {
	clk := &clock{now: time.Unix(1e9, 0)}
	store := newMemStore()
	for i := range 20 {
		store.putKey(fmt.Sprintf("/registry/pods/a/%d", i), largeObject(i))
	}
	rig := newRig(t, store, func(c *watchcache.Config) {
		c.HistoryBytes = 500_000
		c.Now = clk.Now
		keepValuesAsStored(c)
	})
	expired := make(chan struct{})
	one := make([]watchcache.Event, 0, 1)
	next := func(w *watchcache.Watcher) error {
		evs, err := nextEvents(rig.ctx, w, one)
		if err == nil && len(evs) != 1 {
			t.Errorf("got %q, want 1 event", formatEvents(evs))
		}
		return err
	}
	stalled := rig.watch(watchcache.WatchOptions{Initial: watchcache.InitialState, OnExpired: func() { close(expired) }})
	slow := rig.watch(watchcache.WatchOptions{Initial: watchcache.InitialState, OnExpired: func() { t.Error("slow watcher: got expired, want it kept") }})
	if err := errors.Join(next(stalled), next(slow)); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		rig.store.putKey(fmt.Sprintf("/registry/pods/a/%d", i), object{Data: fmt.Sprint(i)}.String())
	}
	rig.store.forgetValues()
	rig.awaitWrites()
	for waiting := true; waiting; {
		select {
		case <-expired:
			waiting = false
		case <-time.After(200 * time.Millisecond): // more often than the cache checks watchers
			clk.advance(time.Second)
			if err := next(slow); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := next(stalled); !isExpired(err) {
		t.Errorf("Next after the expiration: got %v, want ExpiredError", err)
	}
	if n := rig.metric(`binnacle_watch_cache_history_forgotten_early_total{resource="pods"}`); n != 0 {
		t.Errorf("%v changes were forgotten early, want 0", n)
	}
}

// TestUnrelatedWatchersDoNotExpire checks watchers that are unrelated to the changes, idle or
// closed.
func TestUnrelatedWatchersDoNotExpire(t *testing.T) {
	rig := newLargeRig(t, 20)
	var lost atomic.Int32
	opts := watchcache.WatchOptions{
		Selection:     objects.Selection{Namespace: "b"},
		AfterRevision: 21,
		OnExpired:     func() { lost.Add(1) },
	}
	other := rig.watch(opts)
	opts.Selection.Namespace = ""
	closed := rig.watch(opts)
	stalled := make(chan struct{})
	closed.Close()
	rig.watch(watchcache.WatchOptions{AfterRevision: 21, OnExpired: func() { close(stalled) }})
	rig.overwriteLargeObjects(20, 2*events)
	<-stalled // now all watchers have been checked
	if n := lost.Load(); n != 0 {
		t.Errorf("%d watchers expired, want 0", n)
	}
	rig.store.putKey("/registry/pods/b/x", podOnNode(""))
	if got := rig.drain(other); len(got) != 1 {
		t.Errorf("got %q, want 1 event", got)
	}
}
