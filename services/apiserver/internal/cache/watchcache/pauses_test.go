package watchcache_test

import (
	"fmt"
	"testing"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// TestLongReadsPause checks that lists of many objects and the construction of old snapshots call
// Pause regularly, whether or not they select anything, and stop when it returns false.
func TestLongReadsPause(t *testing.T) {
	const total, changes = 3000, 3000
	store := newMemStore()
	for i := range total {
		store.putKey(fmt.Sprintf("/registry/pods/a/%04d", i), podOnNode(""))
	}
	rig := newRig(t, store, func(c *watchcache.Config) { c.LogEvents = 2 * changes })
	before := store.newestRevision()
	for i := range changes {
		store.putKey("/registry/pods/a/0000", podOnNode(fmt.Sprint(i)))
	}
	rig.awaitWrites()
	pauses := 0
	until := func(maximum int) func() bool {
		pauses = 0
		return func() bool {
			pauses++
			return pauses <= maximum
		}
	}
	none := selection(t, "a", "num>5", "")
	all := objects.Selection{Namespace: "a"}
	selected := func(sel objects.Selection, maximum int) (n int) {
		sel.Pause = until(maximum)
		rig.pods.Snapshot().Select(sel, "", func(*objects.Entry) bool {
			n++
			return true
		})
		return n
	}
	if n := selected(none, 9); n != 0 || pauses != 2 {
		t.Errorf("selection without matches: got %d objects, %d pauses, want 0, 2", n, pauses)
	}
	if n := selected(all, 9); n != total || pauses != 2 {
		t.Errorf("selection of all: got %d objects, %d pauses, want %d, 2", n, pauses, total)
	}
	if n := selected(all, 0); n != 1023 || pauses != 1 {
		t.Errorf("stopped selection: got %d objects, %d pauses, want 1023, 1", n, pauses)
	}

	if _, ok := rig.pods.SnapshotAt(before+1, until(0)); ok || pauses != 1 {
		t.Errorf("stopped SnapshotAt: got %t, %d pauses, want false, 1", ok, pauses)
	}
	snap, ok := rig.pods.SnapshotAt(before, until(9))
	if !ok || pauses != 2 || snap.Len() != total {
		t.Errorf("SnapshotAt: got %t, %d pauses, want true, 2", ok, pauses)
	} else if e, _ := snap.Get("/registry/pods/a/0000"); string(e.Stored()) != podOnNode("") {
		t.Errorf("old snapshot: got %s, want %s", e.Stored(), podOnNode(""))
	}

	for name, namespace := range map[string]string{"of a namespace": "a", "of all": ""} {
		calls := 0
		sel := selection(t, namespace, "num>5", "")
		sel.Pause = func() bool {
			calls++
			return calls > 2
		}
		w := rig.watch(watchcache.WatchOptions{Selection: sel, Initial: watchcache.InitialState})
		for ended := 0; ; ended++ {
			got, err := w.Next(t.Context(), nil)
			if err == nil && len(got) == 0 {
				continue // paused
			}
			if err != nil || len(got) != 1 || got[0].Type != watchcache.Bookmark || ended == 0 || calls != 4 {
				t.Errorf("watch %s: got %v, %v after %d interruptions and %d pauses, want one bookmark after some and 4",
					name, formatEvents(got), err, ended, calls)
			}
			break
		}
	}
}

// TestConcurrentSnapshotAtBuildsOnce checks that concurrent calls for one revision build the
// snapshot once and retain it once, so that other snapshots stay retained.
func TestConcurrentSnapshotAtBuildsOnce(t *testing.T) {
	const changes, others, same = 6000, 6, 10
	store := newMemStore()
	store.putKey("/registry/pods/a/0", podOnNode(""))
	rig := newRig(t, store, func(c *watchcache.Config) { c.LogEvents = 2 * changes })
	before := store.newestRevision()
	for i := range changes {
		store.putKey("/registry/pods/a/0", podOnNode(fmt.Sprint(i)))
	}
	rig.awaitWrites()
	at := func(revision int64, pause func() bool) {
		t.Helper()
		snap, ok := rig.pods.SnapshotAt(revision, pause)
		if !ok || snap.LastChangeRevision() != revision {
			t.Fatalf("snapshot at %d: got %t, changed at %d, want one changed there", revision, ok, snap.LastChangeRevision())
		}
	}
	for i := range others {
		at(before+4+int64(i), func() bool { return true })
	}
	pauses := 0
	var more func() bool
	more = func() bool {
		pauses++
		if pauses < same {
			at(before+2500, more)
		}
		return true
	}
	at(before+2500, more)
	if pauses != same+2 { // the call that builds it pauses three times
		t.Errorf("got %d pauses, want %d: only one call may build the snapshot", pauses, same+2)
	}
	for i := range others {
		at(before+4+int64(i), func() bool {
			t.Errorf("snapshot at %d: got a new one, want the retained one", 4+i)
			return true
		})
	}
}

// TestPausedWatcherIsNotCut checks that a watcher that pauses in its initial state is not mistaken
// for one stalled by its client, and reports itself that it expired.
func TestPausedWatcherIsNotCut(t *testing.T) {
	const history = 64
	store := newMemStore()
	for i := range 1500 {
		store.putKey(fmt.Sprintf("/registry/pods/a/%04d", i), podOnNode(""))
	}
	rig := newRig(t, store, func(c *watchcache.Config) { c.LogEvents = history })
	forget := func() { // returns when a stalled watcher was cut
		cut := make(chan struct{})
		stalled := rig.watch(watchcache.WatchOptions{AfterRevision: store.newestRevision(), OnExpired: func() { close(cut) }})
		for i := range 2 * history {
			store.putKey("/registry/pods/a/0000", podOnNode(fmt.Sprint(i)))
		}
		rig.awaitWrites()
		<-cut
		stalled.Close()
	}
	sel := objects.Selection{
		Namespace: "a",
		Pause: func() bool {
			forget()
			forget() // after the first call all stalled watchers have been cut
			return true
		},
	}
	w := rig.watch(watchcache.WatchOptions{
		Selection: sel,
		Initial:   watchcache.InitialState,
		OnExpired: func() { t.Error("paused watcher: got expired, want it kept") },
	})
	for received := 0; ; {
		got, err := nextEvents(t.Context(), w, nil)
		if isExpired(err) && received == 1501 {
			break
		}
		if err != nil {
			t.Fatalf("after %d events: %v", received, err)
		}
		received += len(got)
	}
}
