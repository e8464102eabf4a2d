package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cache/watchcache/watchcachetest"
	"binnacle/services/apiserver/internal/storage"
)

// labelled returns an object with the label app.
func labelled(app string) string { return object{Labels: map[string]string{"app": app}}.String() }

// TestWatcherSeesTransitionsOfItsSelection checks that a watcher receives ADDED and DELETED when an object starts and
// ceases to match.
func TestWatcherSeesTransitionsOfItsSelection(t *testing.T) {
	const key = "/registry/pods/a/x"
	var (
		in, in2 = labelled("yes"), object{Labels: map[string]string{"app": "yes"}, Data: "2"}.String()
		out     = labelled("no")
	)
	tests := []struct {
		name   string
		values []string // "" deletes
		want   []string
	}{
		{name: "created selected", values: []string{in}, want: []string{"ADDED pods/a/x@2 " + in}},
		{name: "never selected", values: []string{out, ""}, want: []string{}},
		{
			name:   "changed while selected",
			values: []string{in, in2},
			want:   []string{"ADDED pods/a/x@2 " + in, "MODIFIED pods/a/x@3 " + in2},
		},
		{name: "changed to selected", values: []string{out, in}, want: []string{"ADDED pods/a/x@3 " + in}},
		{
			name:   "changed to unselected, with the last selected state",
			values: []string{in, out},
			want:   []string{"ADDED pods/a/x@2 " + in, "DELETED pods/a/x@3 " + in},
		},
		{
			name:   "deleted while selected",
			values: []string{in, ""},
			want:   []string{"ADDED pods/a/x@2 " + in, "DELETED pods/a/x@3 " + in},
		},
		{
			name:   "deleted after it was unselected",
			values: []string{in, out, ""},
			want:   []string{"ADDED pods/a/x@2 " + in, "DELETED pods/a/x@3 " + in},
		},
		{
			name:   "created again",
			values: []string{in, "", in2},
			want:   []string{"ADDED pods/a/x@2 " + in, "DELETED pods/a/x@3 " + in, "ADDED pods/a/x@4 " + in2},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rig := newRig(t, newMemStore(), nil)
			w := rig.watch(watchcache.WatchOptions{Selection: selection(t, "", "app=yes", ""), AfterRevision: 1})
			for _, v := range test.values {
				if v == "" {
					rig.store.deleteKey(key)
				} else {
					rig.store.putKey(key, v)
				}
			}
			if got := rig.drain(w); !slices.Equal(got, test.want) {
				t.Fatalf("got %q\nwant %q", got, test.want)
			}
		})
	}
}

// TestWatchersShareEntries checks that watchers receive the same entries, so that encodings can be
// shared.
func TestWatchersShareEntries(t *testing.T) {
	rig := newRig(t, newMemStore(), nil)
	all := rig.watch(watchcache.WatchOptions{AfterRevision: 1})
	some := rig.watch(watchcache.WatchOptions{Selection: selection(t, "", "app=yes", ""), AfterRevision: 1})
	other := rig.watch(watchcache.WatchOptions{Selection: selection(t, "", "app", ""), AfterRevision: 1})
	rig.store.putKey("/registry/pods/a/x", labelled("yes"))
	rig.store.putKey("/registry/pods/a/x", object{}.String()) // ceases to match two selections
	rig.store.putKey("/registry/pods/a/x", labelled("yes"))
	rig.store.deleteKey("/registry/pods/a/x")
	rev := rig.awaitWrites()
	entries := map[string]*objects.Entry{}
	n := 0
	for _, w := range []*watchcache.Watcher{all, some, other} {
		evs, err := drain(rig.ctx, w, rev, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range evs {
			n++
			id := fmt.Sprint(ev.Type, ev.Revision)
			if e := entries[id]; e != nil && e != ev.Entry {
				t.Errorf("%s: got another entry for each watcher, want a shared one", id)
			}
			entries[id] = ev.Entry
			if ev.Type == watchcache.Deleted && (ev.Entry.Revision != ev.Revision || ev.Entry.CreateRevision != 2) {
				t.Errorf("%s: got entry at %d, created at %d, want created at 2", id, ev.Entry.Revision, ev.Entry.CreateRevision)
			}
		}
	}
	// all: ADDED, MODIFIED twice, DELETED; the two others ADDED, DELETED twice.
	if n != 12 || len(entries) != 6 {
		t.Errorf("got %d events with %d entries, want 12 with 6", n, len(entries))
	}
	if e, _ := rig.pods.Get("/registry/pods/a/x"); e != nil {
		t.Error("deleted object: got it in the store, want none")
	}
}

// TestUnrelatedChangesDoNotExpireWatcher checks that changes that a watcher does not select never
// expire it.
func TestUnrelatedChangesDoNotExpireWatcher(t *testing.T) {
	const unrelatedChanges = 500 // more than the log holds
	tests := []struct {
		name string
		sel  objects.Selection
		own  string
		node string
	}{
		{name: "node", sel: selection(t, "", "", "spec.nodeName=n1"), own: "/registry/pods/a/own", node: "n1"},
		{name: "namespace", sel: selection(t, "mine", "", ""), own: "/registry/pods/mine/own"},
		{name: "name", sel: selection(t, "", "", "metadata.name=own"), own: "/registry/pods/a/own"},
		{name: "object", sel: selection(t, "mine", "", "metadata.name=own"), own: "/registry/pods/mine/own"},
		{name: "namespace by field", sel: selection(t, "", "", "metadata.namespace=mine"), own: "/registry/pods/mine/own"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rig := newRig(t, newMemStore(), func(c *watchcache.Config) { c.LogEvents = 64 })
			watcher := rig.watch(watchcache.WatchOptions{Selection: test.sel, AfterRevision: 1})
			if got := rig.drain(watcher); len(got) > 0 {
				t.Fatalf("got %q, want no event", got)
			}
			for i := range unrelatedChanges {
				rig.store.putKey(fmt.Sprintf("/registry/pods/other/%d", i), podOnNode("n2"))
			}
			rig.awaitWrites()
			rig.store.putKey(test.own, podOnNode(test.node))
			want := fmt.Sprintf("ADDED %s@%d %s", test.own[len("/registry/"):], rig.store.newestRevision(), podOnNode(test.node))
			if got := rig.drain(watcher); !slices.Equal(got, []string{want}) {
				t.Fatalf("got %q, want %q", got, want)
			}
			rig.wantMetrics(`binnacle_watch_cache_watchers{resource="pods"} 1`, `binnacle_watch_cache_watcher_groups{resource="pods"} 1`)
			watcher.Close()
			rig.wantMetrics(`binnacle_watch_cache_watchers{resource="pods"} 0`, `binnacle_watch_cache_watcher_groups{resource="pods"} 0`)
		})
	}
}

// TestSlowWatcherExpires checks that a slow watcher expires without effect on other watchers.
func TestSlowWatcherExpires(t *testing.T) {
	rig := newRig(t, newMemStore(), func(c *watchcache.Config) { c.LogEvents = 64 })
	slow := rig.watch(watchcache.WatchOptions{AfterRevision: 1})
	fast := rig.watch(watchcache.WatchOptions{AfterRevision: 1})
	received := 0
	for i := range 10 {
		for j := range 20 {
			rig.store.putKey(fmt.Sprintf("/registry/pods/a/%d-%d", i, j), podOnNode(""))
		}
		received += len(rig.drain(fast))
	}
	if received != 200 {
		t.Errorf("fast watcher received %d events, want 200", received)
	}
	_, err := nextEvents(rig.ctx, slow, nil)
	var gone *watchcache.ExpiredError
	if !errors.As(err, &gone) || gone.Revision != 1 || gone.OldestRevision != 201-64 {
		t.Fatalf("slow watcher: got %v, want ExpiredError of 1, oldest 137", err)
	}
	if _, err := rig.pods.Watch(watchcache.WatchOptions{AfterRevision: 5}); err == nil ||
		err.Error() != "too old resource version: 5 (137)" {
		t.Errorf("watch from 5: got %v", err)
	}
	if _, ok := rig.pods.SnapshotAt(5, nil); ok {
		t.Error("forgotten history: got a snapshot, want none")
	}
	rig.wantMetrics(`apiserver_terminated_watchers_total{resource="pods"} 1`)
}

// TestWatcherExpiresWithFirstMissedChange checks that a watcher that has read nothing gets all
// changes while the log has them, and expires when the log has dropped one of them.
func TestWatcherExpiresWithFirstMissedChange(t *testing.T) {
	const logEvents = 64
	for changes, wantExpired := range map[int]bool{logEvents: false, logEvents + 1: true} {
		rig := newRig(t, newMemStore(), func(c *watchcache.Config) { c.LogEvents = logEvents })
		watcher := rig.watch(watchcache.WatchOptions{AfterRevision: 1})
		for i := range changes {
			rig.store.putKey(fmt.Sprintf("/registry/pods/a/%d", i), podOnNode(""))
		}
		rig.awaitWrites()
		events, err := nextEvents(rig.ctx, watcher, nil)
		if isExpired(err) != wantExpired || !wantExpired && (err != nil || events[0].Revision != 2) {
			t.Errorf("after %d changes: got %d events and error %v, want expired %t", changes, len(events), err, wantExpired)
		}
	}
}

// TestWatchSendsInitialState checks that a watcher receives the selected objects, a bookmark and
// then changes.
func TestWatchSendsInitialState(t *testing.T) {
	store := newMemStore()
	for i := range 5 {
		store.putKey(fmt.Sprintf("/registry/pods/a/%d", i), podOnNode(fmt.Sprintf("n%d", i%2)))
	}
	rig := newRig(t, store, nil)
	w := rig.watch(watchcache.WatchOptions{Selection: selection(t, "", "", "spec.nodeName=n0"), Initial: watchcache.InitialState})
	rig.store.putKey("/registry/pods/a/4", podOnNode("n1")) // after the initial state was taken
	rig.awaitWrites()
	if w.Revision() != 0 {
		t.Errorf("got revision %d before the initial state was sent, want 0", w.Revision())
	}
	want := []string{
		"ADDED pods/a/0@2 " + podOnNode("n0"), "ADDED pods/a/2@4 " + podOnNode("n0"), "ADDED pods/a/4@6 " + podOnNode("n0"),
		"BOOKMARK @6", "DELETED pods/a/4@7 " + podOnNode("n0"),
	}
	if got := rig.drain(w); !slices.Equal(got, want) {
		t.Fatalf("got %q\nwant %q", got, want)
	}
}

// TestWatchFromFutureRevisionSkipsChangesUpToIt checks that a watcher receives no changes up to its revision, even if
// they are yet to come.
func TestWatchFromFutureRevisionSkipsChangesUpToIt(t *testing.T) {
	rig := newRig(t, newMemStore(), nil)
	w := rig.watch(watchcache.WatchOptions{AfterRevision: 4})
	for i := range 5 { // revisions 2 to 6
		rig.store.putKey("/registry/pods/a/x", object{Data: fmt.Sprint(i)}.String())
	}
	want := []string{
		"MODIFIED pods/a/x@5 " + object{Data: "3"}.String(), "MODIFIED pods/a/x@6 " + object{Data: "4"}.String(),
	}
	if got := rig.drain(w); !slices.Equal(got, want) {
		t.Fatalf("got %q\nwant %q", got, want)
	}
}

// TestWatcherRevisionStopsAtUnreadEvents checks that a watcher's revision advances with unrelated
// changes, but never beyond unread events.
func TestWatcherRevisionStopsAtUnreadEvents(t *testing.T) {
	rig := newRig(t, newMemStore(), nil)
	watcher := rig.watch(watchcache.WatchOptions{Selection: selection(t, "a", "", ""), AfterRevision: 1})
	rig.drain(watcher)
	rig.store.putKey("/registry/pods/b/x", podOnNode(""))
	rig.store.advanceRevision()
	if rev := rig.awaitWrites(); watcher.Revision() != rev {
		t.Errorf("got revision %d, want %d", watcher.Revision(), rev)
	}
	before := watcher.Revision()
	rig.store.putKey("/registry/pods/a/x", podOnNode(""))
	rig.store.applyChanges(keyChange{"/registry/pods/a/y", []byte(podOnNode(""))}, keyChange{"/registry/pods/a/z", []byte(podOnNode(""))})
	rev := rig.awaitWrites()
	if watcher.Revision() != before {
		t.Errorf("got revision %d with unread events, want %d", watcher.Revision(), before)
	}
	for _, want := range []int64{rev - 1, rev - 1, rev} { // the last two share one
		evs, err := nextEvents(rig.ctx, watcher, make([]watchcache.Event, 0, 1))
		if err != nil || len(evs) != 1 {
			t.Fatal(evs, err)
		}
		if watcher.Revision() != want {
			t.Errorf("got revision %d after the event of %d, want %d", watcher.Revision(), evs[0].Revision, want)
		}
	}
}

// TestNextReturnsWhenInterrupted checks the error with which a waiting Next ends.
func TestNextReturnsWhenInterrupted(t *testing.T) {
	tests := []struct {
		name string
		end  func(r *rig, w *watchcache.Watcher, cancel func())
		want error
	}{
		{
			name: "closed",
			end:  func(_ *rig, w *watchcache.Watcher, _ func()) { w.Close(); w.Close() },
			want: watchcache.ErrClosed,
		},
		{name: "context", end: func(_ *rig, _ *watchcache.Watcher, cancel func()) { cancel() }, want: context.Canceled},
		{
			name: "resource removed",
			end:  func(r *rig, _ *watchcache.Watcher, _ func()) { r.undefine("pods") },
			want: watchcache.ErrStopped,
		},
		{name: "triggered", end: func(_ *rig, w *watchcache.Watcher, _ func()) { w.Trigger(); w.Trigger() }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			store := newMemStore()
			after := define(store, "pods", "")
			r := newRig(t, store, withDefinitions)
			w := r.watch(watchcache.WatchOptions{AfterRevision: after})
			ctx, cancel := context.WithCancel(r.ctx)
			defer cancel()
			got := make(chan error, 1)
			go func() {
				evs, err := nextEvents(ctx, w, nil)
				if len(evs) > 0 {
					err = fmt.Errorf("got events %q, want none", formatEvents(evs))
				}
				got <- err
			}()
			test.end(r, w, cancel)
			if err := <-got; !errors.Is(err, test.want) {
				t.Errorf("Next returned %v, want %v", err, test.want)
			}
		})
	}
}

// TestReloadExpiresWatchers checks that if history was compacted before the cache saw it, the
// reload expires watchers. Entries of unchanged objects are kept.
func TestReloadExpiresWatchers(t *testing.T) {
	store := newMemStore()
	store.putKey("/registry/pods/a/same", podOnNode("n1"))
	store.putKey("/registry/pods/a/changed", podOnNode("n1"))
	src := &gatedSource{Source: watchcachetest.NewSource(store, "/registry/"), gate: make(chan struct{}, 1)}
	src.gate <- struct{}{}
	rig := newRig(t, store, func(c *watchcache.Config) { c.Source = src })
	old := rig.watch(watchcache.WatchOptions{AfterRevision: 3})
	idle := rig.watch(watchcache.WatchOptions{Selection: selection(t, "", "", "spec.nodeName=n9"), AfterRevision: 3})
	rig.drain(idle)
	future := rig.watch(watchcache.WatchOptions{AfterRevision: 6})
	same, _ := rig.pods.Get("/registry/pods/a/same")

	<-store.watched.get()
	store.breakWatches() // the next watch waits for the gate
	<-src.lost()
	store.putKey("/registry/pods/a/changed", podOnNode("n2"))
	store.putKey("/registry/pods/a/new", podOnNode("n2"))
	store.deleteKey("/registry/pods/a/new")
	store.compact(6)
	close(src.gate)
	rig.awaitWrites()

	for name, w := range map[string]*watchcache.Watcher{"unread": old, "idle": idle} {
		if err := finalError(rig.ctx, w); !isExpired(err) {
			t.Errorf("%s watcher: got %v, want ExpiredError", name, err)
		}
	}
	if _, err := rig.pods.Watch(watchcache.WatchOptions{AfterRevision: 5}); !isExpired(err) {
		t.Errorf("watch from within the gap: got %v, want ExpiredError", err)
	}
	if _, ok := rig.pods.SnapshotAt(5, nil); ok {
		t.Error("revision within the gap: got a snapshot, want none")
	}
	if e, _ := rig.pods.Get("/registry/pods/a/same"); e != same {
		t.Error("unchanged object: got another entry, want the same")
	}
	if e, _ := rig.pods.Get("/registry/pods/a/changed"); e == nil || e.Revision != 4 {
		t.Errorf("changed object is %+v, want revision 4", e)
	}
	fresh := rig.watch(watchcache.WatchOptions{AfterRevision: 6})
	store.putKey("/registry/pods/a/later", podOnNode("n9"))
	want := []string{"ADDED pods/a/later@7 " + podOnNode("n9")}
	if got := rig.drain(fresh); !slices.Equal(got, want) {
		t.Errorf("new watcher got %q, want %q", got, want)
	}
	if got := rig.drain(future); !slices.Equal(got, want) {
		t.Errorf("watcher of the future got %q, want %q", got, want)
	}
	rig.wantMetrics(`apiserver_watch_cache_initializations_total{resource="pods"} 2`)
}

// gatedSource follows only while the gate permits it.
type gatedSource struct {
	watchcache.Source
	gate chan struct{}
	once lazyChan
}

// lost returns a channel that is closed when the first stream has ended.
func (s *gatedSource) lost() <-chan struct{} { return s.once.get() }

// Follow implements watchcache.Source.
func (s *gatedSource) Follow(ctx context.Context, after storage.Position, apply func(storage.Batch) error) error {
	select {
	case <-s.gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := s.Source.Follow(ctx, after, apply)
	s.once.close()
	return err
}
