package watchcache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/storage"
)

// replacedRig returns a rig whose store was saved at revision 5 and is at revision 9. The objects
// named ghost exist only in the revisions after the backup.
func replacedRig(t *testing.T, change func(*watchcache.Config)) (*rig, *bytes.Buffer) {
	t.Helper()
	store := newMemStore()
	for i := range 4 {
		store.putKey(fmt.Sprintf("/registry/pods/a/kept-%d", i), podOnNode("n1"))
	}
	log := &bytes.Buffer{}
	r := newRig(t, store, func(c *watchcache.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
		if change != nil {
			change(c)
		}
	})
	store.putKey("/registry/pods/a/kept-0", object{Data: "ghost"}.String())
	store.putKey("/registry/pods/a/ghost", podOnNode("n1"))
	store.deleteKey("/registry/pods/a/kept-1")
	store.putKey("/registry/pods/a/ghost", podOnNode("n2"))
	r.awaitWrites()
	return r, log
}

// saved is the revision of the backup. newest is the revision of the store before it is restored.
const saved, newest = 5, 9

// writesAfterRestore lists what may be written to the store between its restoration and the next
// access of the cache. The restoration undoes four writes.
var writesAfterRestore = map[string][]keyChange{
	"no writes":                nil,
	"fewer writes than undone": {{"/registry/pods/a/new", []byte("{}")}},
	"as many writes as undone": {
		{"/registry/pods/a/new", []byte("{}")}, {"/registry/pods/a/new", []byte(`{"d":"1"}`)},
		{"/registry/pods/a/new", []byte(`{"d":"2"}`)}, {"/registry/pods/a/ghost", []byte(`{"d":"3"}`)},
	},
	"more writes than undone": {
		{"/registry/pods/a/new", []byte("{}")},
		{"/registry/pods/a/new", []byte(`{"d":"1"}`)},
		{"/registry/pods/a/new",
			[]byte(`{"d":"2"}`)},
		{"/registry/pods/a/new", []byte(`{"d":"3"}`)},
		{"/registry/pods/a/new", []byte(`{"d":"4"}`)},
		{"/registry/pods/a/other", []byte("{}")},
	},
}

// restoreBackup restores the store and writes to it before the cache watches it again. No watch
// survives a restoration.
func (r *rig) restoreBackup(writes []keyChange) {
	synctest.Wait()
	r.store.mu.Lock()
	r.store.rewind(saved)
	r.store.mu.Unlock()
	r.store.breakWatches()
	for _, o := range writes {
		r.store.applyChanges(o)
	}
}

// restoreBackupSilently is like restoreBackup, but no stream ends or reports it.
func (r *rig) restoreBackupSilently(writes []keyChange) {
	synctest.Wait()
	r.store.mu.Lock()
	r.store.rewind(saved)
	r.store.mu.Unlock()
	for _, o := range writes {
		r.store.applyWithoutEvents(o)
	}
}

// reload waits until the cache has detected a restoration and has reloaded.
func (r *rig) reload() {
	synctest.Wait()
	time.Sleep(time.Minute)
	synctest.Wait()
}

// forRestorations runs a test with each of writesAfterRestore, on a rig of replacedRig.
func forRestorations(t *testing.T, test func(t *testing.T, r *rig, log *bytes.Buffer, writes []keyChange)) {
	for name, writes := range writesAfterRestore {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := replacedRig(t, nil)
				test(t, r, log, writes)
			})
		})
	}
}

// TestRestoredStoreExpiresWatchers checks that all watchers expire after the store was restored,
// and that an error is logged.
func TestRestoredStoreExpiresWatchers(t *testing.T) {
	forRestorations(t, func(t *testing.T, r *rig, log *bytes.Buffer, writes []keyChange) {
		nodes, err := r.cache.Store("nodes").Watch(watchcache.WatchOptions{AfterRevision: newest})
		if err != nil {
			t.Fatal(err)
		}
		defer nodes.Close()
		watchers := map[string]*watchcache.Watcher{
			"up to date":          r.watch(watchcache.WatchOptions{AfterRevision: newest}),
			"lagging":             r.watch(watchcache.WatchOptions{AfterRevision: saved}),
			"of another resource": nodes,
			"of a selection": r.watch(watchcache.WatchOptions{
				AfterRevision: newest,
				Selection:     selection(t, "", "", nodeField+"=n1"),
			}),
			"with initial state": r.watch(watchcache.WatchOptions{Initial: watchcache.InitialState}),
		}
		r.restoreBackup(writes)
		r.reload()
		for name, w := range watchers {
			if _, err := nextEvents(r.ctx, w, nil); !isExpired(err) {
				t.Errorf("watcher %s: Next = %v, want ExpiredError", name, err)
			}
		}
		r.wantMetrics("binnacle_watch_cache_store_replaced_total 1", `apiserver_terminated_watchers_total{resource="pods"} 0`)
		if !bytes.Contains(log.Bytes(), []byte("level=ERROR")) || !bytes.Contains(log.Bytes(), []byte("applied=9")) {
			t.Errorf("got log\n%s\nwant an error with applied=9", log)
		}
	})
}

// TestCacheShowsRestoredStore checks that the cache contains what the store contains after it was
// restored, in the next incarnation.
func TestCacheShowsRestoredStore(t *testing.T) {
	forRestorations(t, func(t *testing.T, r *rig, _ *bytes.Buffer, writes []keyChange) {
		before := r.pods.Snapshot()
		incarnation := r.cache.Incarnation()
		r.restoreBackup(writes)
		r.reload()
		rev := r.awaitWrites()
		snapshot := r.pods.Snapshot()
		if snapshot.Revision() != rev || rev != r.store.newestRevision() {
			t.Errorf("snapshot at %d, cache at %d, store at %d, want equal revisions", snapshot.Revision(), rev, r.store.newestRevision())
		}
		got, want := cacheList(snapshot, objects.Selection{}, ""), modelList(r.store, rev, objects.Selection{}, "")
		if !slices.Equal(got, want) {
			t.Errorf("got objects\n%q, want\n%q", got, want)
		}
		if !r.cache.Ready() || r.cache.Incarnation() != incarnation+1 {
			t.Errorf("Ready = %t, Incarnation = %d, want true, %d", r.cache.Ready(), r.cache.Incarnation(), incarnation+1)
		}
		if snapshot.Version() == before.Version() {
			t.Errorf("Version = %v, want another version than before the restoration", snapshot.Version())
		}
	})
}

// TestRestoredStoreDiscardsDerivedData checks that older snapshots and cached encodings are
// discarded after the store was restored.
func TestRestoredStoreDiscardsDerivedData(t *testing.T) {
	forRestorations(t, func(t *testing.T, r *rig, _ *bytes.Buffer, writes []keyChange) {
		if _, ok := r.pods.SnapshotAt(saved+2, nil); !ok {
			t.Fatal("SnapshotAt before the restoration: got no snapshot, want an older one")
		}
		ghost, _ := r.pods.Get("/registry/pods/a/ghost")
		if _, err := ghost.Encoding(1, func(*objects.Entry) ([]byte, error) { return []byte("x"), nil }); err != nil {
			t.Fatal(err)
		}
		r.restoreBackup(writes)
		r.reload()
		rev := r.awaitWrites()
		if _, ok := r.pods.SnapshotAt(saved+2, nil); ok && rev != saved+2 {
			t.Error("SnapshotAt returned an older snapshot after the restoration, want none")
		}
		if _, ok := ghost.Encoded(1); ok {
			t.Error("Encoded of an entry before the restoration = true, want false")
		}
		r.wantMetrics("binnacle_watch_cache_encodings 0", "binnacle_watch_cache_history_bytes 0", "binnacle_watch_cache_images_bytes 0")
	})
}

// TestWatchAfterRestoration checks that watches deliver changes after the store was restored, and
// that history starts there.
func TestWatchAfterRestoration(t *testing.T) {
	forRestorations(t, func(t *testing.T, r *rig, _ *bytes.Buffer, writes []keyChange) {
		r.restoreBackup(writes)
		r.reload()
		w := r.watch(watchcache.WatchOptions{AfterRevision: r.awaitWrites()})
		revision := r.store.putKey("/registry/pods/a/next", "{}")
		if got, want := r.drain(w), []string{fmt.Sprintf("ADDED pods/a/next@%d {}", revision)}; !slices.Equal(got, want) {
			t.Errorf("got events %q, want %q", got, want)
		}
		if _, err := r.pods.Watch(watchcache.WatchOptions{AfterRevision: saved - 1}); !isExpired(err) {
			t.Errorf("Watch after a revision before the backup = %v, want ExpiredError", err)
		}
	})
}

// TestReadDetectsStoreRewind checks that a read of the newest state never returns the state before
// the restoration, even if the stream reports nothing. Until the reload the cache serves no
// request.
func TestReadDetectsStoreRewind(t *testing.T) {
	for name, writes := range writesAfterRestore {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held := &heldLoad{release: make(chan struct{})}
				rig, _ := replacedRig(t, func(c *watchcache.Config) { held.Source, c.Source = c.Source, held })
				held.hold.Store(true)
				rig.restoreBackupSilently(writes)
				if _, err := rig.pods.MostRecent(rig.ctx); !errors.Is(err, watchcache.ErrNotReady) {
					t.Fatalf("MostRecent: got %v, want ErrNotReady", err)
				}
				synctest.Wait()
				if rig.cache.Ready() {
					t.Error("Ready = true during the reload, want false")
				}
				_, err := rig.pods.Watch(watchcache.WatchOptions{Initial: watchcache.InitialState})
				if !errors.Is(err, watchcache.ErrNotReady) {
					t.Errorf("watch during the reload: got %v, want ErrNotReady", err)
				}
				if _, ok := rig.pods.SnapshotAt(newest, nil); ok {
					t.Error("SnapshotAt returned a state before the restoration, want none")
				}
				close(held.release)
				if err := rig.cache.WaitReady(rig.ctx); err != nil {
					t.Fatal(err)
				}
				rig.awaitWrites()
				if _, ok := rig.pods.Get("/registry/pods/a/kept-1"); !ok {
					t.Error("object deleted after the backup: got none, want it restored")
				}
				if e, ok := rig.pods.Get("/registry/pods/a/kept-0"); !ok || e.Revision != 2 {
					t.Errorf("object changed after the backup is %+v, want revision 2", e)
				}
			})
		})
	}
}

// TestIdleCacheDetectsStoreRewind checks that the periodic check of an idle cache detects the
// restoration.
func TestIdleCacheDetectsStoreRewind(t *testing.T) {
	for name, writes := range writesAfterRestore {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := replacedRig(t, func(c *watchcache.Config) { c.ConfirmEvery = time.Second })
				w := r.watch(watchcache.WatchOptions{AfterRevision: newest})
				r.restoreBackupSilently(writes)
				if _, err := nextEvents(r.ctx, w, nil); !isExpired(err) {
					t.Errorf("watcher: got %v, want ExpiredError", err)
				}
				if err := r.cache.WaitReady(r.ctx); err != nil {
					t.Fatal(err)
				}
				if _, ok := r.pods.Get("/registry/pods/a/kept-1"); !ok {
					t.Error("object deleted after the backup: got none, want it restored")
				}
			})
		})
	}
}

// TestBrokenWatchesResumeWithoutReload checks that broken watches of an unchanged store resume.
func TestBrokenWatchesResumeWithoutReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig, _ := replacedRig(t, nil)
		watcher := rig.watch(watchcache.WatchOptions{AfterRevision: newest})
		var want []string
		for i := range 20 {
			rig.store.breakWatches()
			rev := rig.store.putKey("/registry/pods/a/new", fmt.Sprintf(`{"d":"%d"}`, i))
			want = append(want, fmt.Sprintf(`MODIFIED pods/a/new@%d {"d":"%d"}`, rev, i))
			if i%3 == 0 {
				rig.store.advanceRevision()
			}
			rig.awaitWrites()
			if i == 10 {
				rig.store.compact(rev)
			}
		}
		want[0] = "ADDED" + want[0][len("MODIFIED"):]
		if got := rig.drain(watcher); !slices.Equal(got, want) {
			t.Errorf("got\n%q, want\n%q", got, want)
		}
		rig.wantMetrics("binnacle_watch_cache_store_replaced_total 0")
	})
}

// heldLoad is a source whose loads can be blocked.
type heldLoad struct {
	watchcache.Source
	hold    atomic.Bool
	release chan struct{}
}

// Load implements watchcache.Source.
func (s *heldLoad) Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	if s.hold.Load() {
		select {
		case <-s.release:
		case <-ctx.Done():
		}
	}
	return s.Source.Load(ctx, page)
}

// TestWatchResumesWithinRevision checks a watch that is interrupted within the deletion of all keys
// of a lease, which has one revision. It resumes from its last revision and misses no event.
func TestWatchResumesWithinRevision(t *testing.T) {
	const n = 200 // more than a watcher reads at once
	key := func(i int) string { return fmt.Sprintf("/registry/pods/ns%d/p%03d", i%2, i) }
	for _, sel := range []objects.Selection{{}, selection(t, "ns1", "", ""), selection(t, "", "app=yes", "")} {
		rig := newRig(t, newMemStore(), nil)
		var deletions []keyChange
		for i := range n {
			rig.store.putKey(key(i), labelled([]string{"yes", "no", "no"}[i%3]))
			deletions = append(deletions, keyChange{key(i), nil})
		}
		start := rig.awaitWrites()
		end := rig.store.applyChanges(deletions...)
		rig.awaitWrites()
		whole, err := drain(rig.ctx, rig.watch(watchcache.WatchOptions{Selection: sel, AfterRevision: start}), end, 7)
		if err != nil {
			t.Fatal(err)
		}
		if last := whole[len(whole)-1].Entry.Revision; last != end {
			t.Errorf("last event has revision %d, want %d", last, end)
		}
		for cut := 1; cut <= len(whole); cut++ {
			seen := map[string]bool{}
			for _, ev := range whole[:cut] {
				seen[ev.Entry.Key()] = true
			}
			more, err := drain(rig.ctx, rig.watch(watchcache.WatchOptions{
				Selection:     sel,
				AfterRevision: whole[cut-1].Entry.Revision,
			}), end, 50)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range more {
				seen[ev.Entry.Key()] = true
			}
			if len(seen) != len(whole) {
				t.Fatalf("interrupted after %d events: got %d in all, want %d", cut, len(seen), len(whole))
			}
			if cut == len(whole) && len(more) != 0 {
				t.Errorf("complete watcher: got %d events again, want none", len(more))
			}
		}
	}
}
