package watchcache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/cache/watchcache"
)

// TestOldestChangeAgeExcludesHistory checks that OldestChangeAge measures the age of changes that
// arrived while the watcher existed. Earlier changes are history.
func TestOldestChangeAgeExcludesHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig(t, newMemStore(), nil)
		rig.store.putKey("/registry/pods/a/old", object{}.String())
		rig.awaitWrites()
		time.Sleep(time.Minute)
		watcher := rig.watch(watchcache.WatchOptions{AfterRevision: 1})
		next := func() int {
			t.Helper()
			got, err := nextEvents(rig.ctx, watcher, nil)
			if err != nil {
				t.Fatal(err)
			}
			return len(got)
		}
		if n := next(); n != 1 {
			t.Fatalf("got %d events, want 1", n)
		}
		if d, ok := watcher.OldestChangeAge(); ok {
			t.Errorf("OldestChangeAge = %v for history, want none", d)
		}
		rig.store.putKey("/registry/pods/a/x", object{}.String())
		rig.awaitWrites()
		time.Sleep(3 * time.Second)
		rig.store.putKey("/registry/pods/a/y", object{}.String())
		rig.awaitWrites()
		time.Sleep(time.Second)
		if n := next(); n != 2 {
			t.Fatalf("got %d events, want 2", n)
		}
		if d, ok := watcher.OldestChangeAge(); !ok || d != 4*time.Second {
			t.Errorf("OldestChangeAge = %v, %t, want 4s, true", d, ok)
		}
		watcher.Trigger()
		if n := next(); n != 0 {
			t.Fatalf("got %d events, want 0", n)
		}
		if d, ok := watcher.OldestChangeAge(); ok {
			t.Errorf("OldestChangeAge = %v without events, want none", d)
		}
	})
}
