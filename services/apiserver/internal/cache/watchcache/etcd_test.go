package watchcache_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cache/watchcache/watchcachetest"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestCacheMatchesEtcd checks that a cache over etcd has the same objects and events as a model of the
// writes. It also checks that the cache follows revisions that change nothing below its root, and that
// Source.Follow fails at a compacted revision.
func TestCacheMatchesEtcd(t *testing.T) {
	// 1. Write to etcd, and record each write in the model.
	store := etcdtest.Embedded(t)
	mirror := newMemStore()    // the model
	live := map[string]int64{} // the revision of each existing key
	write := func(key string, value []byte) {
		t.Helper()
		event := storage.Event{Type: storage.Updated, Key: key, Value: value}
		var err error
		rev := live[key]
		switch {
		case rev == 0 && value == nil:
			return
		case rev == 0:
			event.Type = storage.Created
			event.Revision, err = store.Create(t.Context(), key, value, storage.WriteOptions{})
			event.CreateRevision = event.Revision
		case value == nil:
			event.Type = storage.Deleted
			event.Revision, err = store.Delete(t.Context(), key, rev)
		default:
			event.Revision, err = store.Update(t.Context(), key, value, rev, storage.WriteOptions{})
			event.CreateRevision = mirror.current[key].CreateRevision
		}
		if err != nil {
			t.Fatal(err)
		}
		live[key] = event.Revision
		if value == nil {
			delete(live, key)
		}
		mirror.history = append(mirror.history, event)
		applyEvent(mirror.current, event)
	}
	writeRandomPods := func(n int) {
		for range n {
			key := fmt.Sprintf("/registry/pods/%c/%d", 'a'+rune(rand.IntN(3)), rand.IntN(5))
			value := []byte(podOnNode(fmt.Sprintf("n%d", rand.IntN(3))))
			if rand.IntN(4) == 0 {
				value = nil
			}
			write(key, value)
		}
	}
	writeRandomPods(50)

	// 2. Start the cache and two watchers, and write more.
	rig := newRig(t, mirror, func(c *watchcache.Config) {
		c.Source = watchcachetest.NewSource(store, "/registry/")
		c.CurrentRevision = store
	})
	start := rig.awaitWrites()
	sel := selection(t, "", "", nodeField+"=n1")
	all := rig.watch(watchcache.WatchOptions{AfterRevision: start})
	filtered := rig.watch(watchcache.WatchOptions{Selection: sel, AfterRevision: start})
	writeRandomPods(50)
	middle := rig.awaitWrites()
	writeRandomPods(50)
	end := rig.awaitWrites()

	// 3. Compare the events.
	for _, w := range []struct {
		*watchcache.Watcher
		sel objects.Selection
	}{
		{Watcher: all, sel: objects.Selection{}},
		{Watcher: filtered, sel: sel},
	} {
		if got, want := rig.drain(w.Watcher), modelEvents(mirror, start, end, w.sel); !slices.Equal(got, want) {
			t.Errorf("watcher of %+v:\n got %q\nwant %q", w.sel, got, want)
		}
	}

	// 4. Compare the objects at three revisions.
	for _, rev := range []int64{start, middle, end} {
		sn, ok := rig.pods.SnapshotAt(rev, nil)
		if !ok {
			t.Errorf("at %d: got no snapshot, want one", rev)
			continue
		}
		if got, want := cacheList(sn, sel, ""), modelList(mirror, rev, sel, ""); !slices.Equal(got, want) {
			t.Errorf("at %d:\n got %q\nwant %q", rev, got, want)
		}
	}

	// 5. Write outside of the root of the cache, which must reach that revision too.
	if _, err := store.Create(t.Context(), "/elsewhere", []byte("x"), storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if rev := rig.awaitWrites(); rev != end+1 || rig.cache.Revision() < rev {
		t.Errorf("cache at %d, store at %d, want %d", rig.cache.Revision(), rev, end+1)
	}

	// 6. Follow etcd from a compacted revision.
	if err := store.Compact(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	src := watchcachetest.NewSource(store, "/registry/")
	err := src.Follow(t.Context(), storage.Position{Revision: start}, func(storage.Batch) error { return nil })
	var compacted *storage.CompactedError
	if !errors.As(err, &compacted) {
		t.Errorf("Follow from a compacted revision: got %v, want CompactedError", err)
	}
}
