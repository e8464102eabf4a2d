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

	"binnacle/services/apiserver/internal/cache/watchcache"
)

// large is an object that shows in the estimate of what is held.
func large(i int) string {
	return object{Data: fmt.Sprintf("%06d", i) + strings.Repeat("x", 100_000), Fields: map[string]string{nodeField: "n1"}}.String()
}

// collect frees what nobody holds. What is set free during one collection is
// free for certain after the one after it.
func collect() {
	for range 3 {
		runtime.GC()
	}
}

// churn replaces every one of n large objects as often as history is long, so
// that nothing of what was there before is left in the cache.
func (r *rig) churn(n, events int) {
	r.t.Helper()
	for i := range events {
		r.store.put(fmt.Sprintf("/registry/pods/a/%d", i%n), object{Data: fmt.Sprint(i)}.String())
	}
	r.sync() // with their values: of what cannot be read the last readable version is kept
	r.store.forgetValues()
}

// rounds of collections are far more than it takes to free what nobody holds. They
// are counted, as no time says how long a busy machine needs for them.
const rounds = 200

// held is the estimate once it has become what is wanted, or the last one.
func (r *rig) held(ok func(float64) bool) (n float64) {
	r.t.Helper()
	for range rounds {
		collect()
		if n = r.metric("binnacle_watch_cache_pinned_bytes"); ok(n) {
			break
		}
		runtime.Gosched()
	}
	return n
}

func most(limit float64) func(float64) bool  { return func(n float64) bool { return n <= limit } }
func least(limit float64) func(float64) bool { return func(n float64) bool { return n >= limit } }

const events = 200 // of history in these tests

func newLargeRig(t *testing.T, n int) *rig {
	store := newMemStore()
	for i := range n {
		store.put(fmt.Sprintf("/registry/pods/a/%d", i), large(i))
	}
	return newRig(t, store, func(c *watchcache.Config) {
		c.LogEvents = events
		verbatim(c)
	})
}

// What an answer holds is counted until it is written.
func TestPinnedBytes(t *testing.T) {
	r := newLargeRig(t, 20)
	sn := r.pods.Snapshot()
	r.churn(20, 2*events)
	if n := r.held(least(1.5e6)); n < 1.5e6 || n > 2.5e6 {
		t.Errorf("a snapshot of 2 MB holds %.0f bytes", n)
	}
	runtime.KeepAlive(sn)
	sn = watchcache.Snapshot{}
	if n := r.held(most(0)); n > 0 {
		t.Errorf("%.0f bytes are held by nobody", n)
	}
}

// A watcher that waits holds nothing of what it was told.
func TestIdleWatcherHoldsNothing(t *testing.T) {
	r := newLargeRig(t, 20)
	sel := selection(t, "", "", nodeField+"=n1")
	w := r.watch(watchcache.WatchOptions{Selection: sel, Initial: watchcache.InitialState})
	told := make(chan int, 100)
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan error, 1)
	go func() {
		buf := make([]watchcache.Event, 0, 64)
		for {
			evs, err := next(ctx, w, buf)
			if err != nil {
				done <- err
				return
			}
			told <- len(evs)
		}
	}()
	wait := func(n int) {
		t.Helper()
		for n > 0 {
			select {
			case k := <-told:
				n -= k
			case err := <-done:
				t.Fatalf("%d events were not told: %v", n, err)
			}
		}
	}
	wait(21)
	r.churn(20, 20)
	wait(20) // that they are selected no more
	w.Nudge()
	for k := range told { // none: it has come back since, and waits
		if k == 0 {
			break
		}
	}
	r.churn(20, 2*events)
	if n := r.held(most(0)); n > 0 {
		t.Errorf("an idle watcher holds %.0f bytes", n)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A watcher whose owner does not come back is ended when its place is gone, and
// what it was about to tell is released.
func TestStalledWatcherIsCut(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts watchcache.WatchOptions
		read int // events before the owner stalls
	}{
		{"initial state", watchcache.WatchOptions{Initial: watchcache.InitialState}, 1},
		{"initial state of a namespace", watchcache.WatchOptions{Selection: watchcache.Selection{Namespace: "a"}, Initial: watchcache.InitialState}, 1},
		{"behind", watchcache.WatchOptions{After: 1}, 1},
		{"active", watchcache.WatchOptions{After: 21}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newLargeRig(t, 20)
			var lost atomic.Int32
			called := make(chan struct{}, 1)
			tc.opts.Lost = func() { lost.Add(1); called <- struct{}{} }
			if tc.name == "behind" { // history begins with the load
				r.store.put("/registry/pods/a/more", large(0))
				tc.opts.After = r.sync() - 1
			}
			w := r.watch(tc.opts)
			for range tc.read {
				if evs, err := next(r.ctx, w, make([]watchcache.Event, 0, 1)); err != nil || len(evs) != 1 {
					t.Fatal(evs, err)
				}
			}
			r.churn(20, 2*events)
			select {
			case <-called:
			case <-time.After(time.Minute):
				t.Fatal("nobody was told")
			}
			if n := r.held(most(1e5)); n > 1e5 { // one that it was told
				t.Errorf("%.0f bytes are held", n)
			}
			if evs, err := next(r.ctx, w, nil); !expired(err) {
				t.Errorf("after its end it told %q, %v", texts(evs), err)
			}
			r.wantMetrics(`apiserver_terminated_watchers_total{resource="pods"} 1`)
			w.Close()
			r.churn(20, events)
			if n := lost.Load(); n != 1 {
				t.Errorf("told %d times", n)
			}
		})
	}
}

// Where memory is short, a watcher that is held up is ended while its place is
// still kept, but not one that goes on, however slowly.
func TestStalledWatcherIsCutForMemory(t *testing.T) {
	clk := &clock{now: time.Unix(1e9, 0)}
	store := newMemStore()
	for i := range 20 {
		store.put(fmt.Sprintf("/registry/pods/a/%d", i), large(i))
	}
	r := newRig(t, store, func(c *watchcache.Config) {
		c.HistoryBytes, c.Now = 500_000, clk.Now
		verbatim(c)
	})
	cut := make(chan struct{})
	one := make([]watchcache.Event, 0, 1)
	next := func(w *watchcache.Watcher) error {
		evs, err := next(r.ctx, w, one)
		if err == nil && len(evs) != 1 {
			t.Errorf("told %q", texts(evs))
		}
		return err
	}
	held := r.watch(watchcache.WatchOptions{Initial: watchcache.InitialState, Lost: func() { close(cut) }})
	slow := r.watch(watchcache.WatchOptions{Initial: watchcache.InitialState, Lost: func() { t.Error("who goes on was cut") }})
	if err := errors.Join(next(held), next(slow)); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		r.store.put(fmt.Sprintf("/registry/pods/a/%d", i), object{Data: fmt.Sprint(i)}.String())
	}
	r.store.forgetValues()
	r.sync()
	for waiting := true; waiting; {
		select {
		case <-cut:
			waiting = false
		case <-time.After(200 * time.Millisecond): // more often than they are looked at
			clk.advance(time.Second)
			if err := next(slow); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := next(held); !expired(err) {
		t.Errorf("after its end: %v", err)
	}
	if n := r.metric(`binnacle_watch_cache_history_forgotten_early_total{resource="pods"}`); n != 0 {
		t.Errorf("%v changes were forgotten", n)
	}
}

// Others are not cut: those that something else changed for, that wait, or that
// have been closed.
func TestOnlyTheLostAreCut(t *testing.T) {
	r := newLargeRig(t, 20)
	var lost atomic.Int32
	opts := watchcache.WatchOptions{Selection: watchcache.Selection{Namespace: "b"}, After: 21, Lost: func() { lost.Add(1) }}
	other := r.watch(opts)
	opts.Selection.Namespace = ""
	closed, stalled := r.watch(opts), make(chan struct{})
	closed.Close()
	r.watch(watchcache.WatchOptions{After: 21, Lost: func() { close(stalled) }})
	r.churn(20, 2*events)
	<-stalled // so all have been looked at
	if n := lost.Load(); n != 0 {
		t.Errorf("%d were cut", n)
	}
	r.store.put("/registry/pods/b/x", onNode(""))
	if got := r.drain(other); len(got) != 1 {
		t.Errorf("told %q", got)
	}
}
