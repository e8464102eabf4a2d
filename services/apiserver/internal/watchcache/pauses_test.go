package watchcache_test

import (
	"fmt"
	"testing"

	"binnacle/services/apiserver/internal/watchcache"
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
