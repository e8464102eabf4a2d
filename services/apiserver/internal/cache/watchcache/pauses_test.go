package watchcache_test

import (
	"fmt"
	"testing"

	"binnacle/services/apiserver/internal/cache/watchcache"
)

// TestOthersWorkMeanwhile: who looks at many objects, or has many changes undone, lets others
// work, whether or not anything is found, and goes on for as long as he may.
func TestOthersWorkMeanwhile(t *testing.T) {
	const objects, changes = 3000, 3000
	store := newMemStore()
	for i := range objects {
		store.put(fmt.Sprintf("/registry/pods/a/%04d", i), onNode(""))
	}
	r := newRig(t, store, func(c *watchcache.Config) { c.LogEvents = 2 * changes })
	before := store.now()
	for i := range changes {
		store.put("/registry/pods/a/0000", onNode(fmt.Sprint(i)))
	}
	r.sync()
	pauses := 0
	until := func(most int) func() bool {
		pauses = 0
		return func() bool {
			pauses++
			return pauses <= most
		}
	}
	none := selection(t, "a", "num>5", "")
	all := watchcache.Selection{Namespace: "a"}
	selected := func(sel watchcache.Selection, most int) (n int) {
		sel.Pause = until(most)
		r.pods.Snapshot().Select(sel, "", func(*watchcache.Entry) bool {
			n++
			return true
		})
		return n
	}
	if n := selected(none, 9); n != 0 || pauses != 2 {
		t.Errorf("a selection of nothing: %d objects, %d pauses", n, pauses)
	}
	if n := selected(all, 9); n != objects || pauses != 2 {
		t.Errorf("a selection of all: %d objects, %d pauses", n, pauses)
	}
	if n := selected(all, 0); n != 1023 || pauses != 1 {
		t.Errorf("one that may not go on: %d objects, %d pauses", n, pauses)
	}

	if _, ok := r.pods.SnapshotAt(before+1, until(0)); ok || pauses != 1 {
		t.Errorf("an old state that may not be made: %t, %d pauses", ok, pauses)
	}
	snap, ok := r.pods.SnapshotAt(before, until(9))
	if !ok || pauses != 2 || snap.Len() != objects {
		t.Errorf("an old state: %t, %d pauses", ok, pauses)
	} else if e, _ := snap.Get("/registry/pods/a/0000"); string(e.Stored()) != onNode("") {
		t.Errorf("an old state has %s", e.Stored())
	}

	for name, namespace := range map[string]string{"of a namespace": "a", "of all": ""} {
		calls := 0
		sel := selection(t, namespace, "num>5", "")
		sel.Pause = func() bool {
			calls++
			return calls > 2
		}
		w := r.watch(watchcache.WatchOptions{Selection: sel, Initial: watchcache.InitialState})
		for ended := 0; ; ended++ {
			got, err := w.Next(t.Context(), nil)
			if err == nil && len(got) == 0 {
				continue // it may not go on yet
			}
			if err != nil || len(got) != 1 || got[0].Type != watchcache.Bookmark || ended == 0 || calls != 4 {
				t.Errorf("a watch %s: %v, %v, %d times ended, %d pauses", name, texts(got), err, ended, calls)
			}
			break
		}
	}
}

// TestMadeMeanwhile: an old state that many have made at the same time is made for one of them, and is
// kept once, so that others stay kept beside it.
func TestMadeMeanwhile(t *testing.T) {
	const changes, others, same = 6000, 6, 10
	store := newMemStore()
	store.put("/registry/pods/a/0", onNode(""))
	r := newRig(t, store, func(c *watchcache.Config) { c.LogEvents = 2 * changes })
	before := store.now()
	for i := range changes {
		store.put("/registry/pods/a/0", onNode(fmt.Sprint(i)))
	}
	r.sync()
	at := func(revision int64, pause func() bool) {
		t.Helper()
		snap, ok := r.pods.SnapshotAt(revision, pause)
		if !ok || snap.Changed() != revision {
			t.Fatalf("%d: %t, changed at %d", revision, ok, snap.Changed())
		}
	}
	for i := range others {
		at(before+4+int64(i), func() bool { return true })
	}
	pauses := 0
	var more func() bool
	more = func() bool {
		if pauses++; pauses < same {
			at(before+2500, more)
		}
		return true
	}
	at(before+2500, more)
	if pauses != same+2 { // the one who makes it has three
		t.Errorf("%d pauses, where all but one find it made at their first", pauses)
	}
	for i := range others {
		at(before+4+int64(i), func() bool {
			t.Errorf("the state at %d is not kept any more", 4+i)
			return true
		})
	}
}

// TestPausesOfAWatchThatBegins: who waits to go on with what a watch is told first is not taken for one who
// waits for his client, and learns himself that his place is gone.
func TestPausesOfAWatchThatBegins(t *testing.T) {
	const history = 64
	store := newMemStore()
	for i := range 1500 {
		store.put(fmt.Sprintf("/registry/pods/a/%04d", i), onNode(""))
	}
	r := newRig(t, store, func(c *watchcache.Config) { c.LogEvents = history })
	forget := func() { // until somebody was cut who does not ask
		cut := make(chan struct{})
		stalled := r.watch(watchcache.WatchOptions{After: store.now(), Lost: func() { close(cut) }})
		for i := range 2 * history {
			store.put("/registry/pods/a/0000", onNode(fmt.Sprint(i)))
		}
		r.sync()
		<-cut
		stalled.Close()
	}
	sel := watchcache.Selection{Namespace: "a", Pause: func() bool {
		forget()
		forget() // the first time all others have been cut too
		return true
	}}
	w := r.watch(watchcache.WatchOptions{Selection: sel, Initial: watchcache.InitialState, Lost: func() { t.Error("who asks is cut") }})
	for told := 0; ; {
		got, err := next(t.Context(), w, nil)
		if expired(err) && told == 1501 {
			break
		}
		if err != nil {
			t.Fatalf("after %d events: %v", told, err)
		}
		told += len(got)
	}
}
