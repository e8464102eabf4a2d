package watchcache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/cache/watchcache"
)

// How long a change has waited is told of those that came while somebody watched: what
// is told of before is history, not late.
func TestHowLongChangesHaveWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newMemStore(), nil)
		r.store.put("/registry/pods/a/old", object{}.String())
		r.sync()
		time.Sleep(time.Minute)
		w := r.watch(watchcache.WatchOptions{After: 1})
		next := func() int {
			t.Helper()
			got, err := next(r.ctx, w, nil)
			if err != nil {
				t.Fatal(err)
			}
			return len(got)
		}
		if n := next(); n != 1 {
			t.Fatalf("%d events", n)
		}
		if d, ok := w.Waited(); ok {
			t.Errorf("history has waited %v", d)
		}
		r.store.put("/registry/pods/a/x", object{}.String())
		r.sync()
		time.Sleep(3 * time.Second)
		r.store.put("/registry/pods/a/y", object{}.String())
		r.sync()
		time.Sleep(time.Second)
		if n := next(); n != 2 {
			t.Fatalf("%d events", n)
		}
		if d, ok := w.Waited(); !ok || d != 4*time.Second {
			t.Errorf("the oldest has waited %v, %v", d, ok)
		}
		w.Nudge()
		if n := next(); n != 0 {
			t.Fatalf("%d events", n)
		}
		if d, ok := w.Waited(); ok {
			t.Errorf("nothing has waited %v", d)
		}
	})
}
