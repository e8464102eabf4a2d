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

// replacedRig returns a rig whose store was saved at revision 5 and is at revision 9.
func replacedRig(t *testing.T, change func(*watchcache.Config)) (*rig, *bytes.Buffer) {
	t.Helper()
	store := newMemStore()
	for i := range 4 {
		store.put(fmt.Sprintf("/registry/pods/a/kept-%d", i), podOnNode("n1"))
	}
	log := &bytes.Buffer{}
	r := newRig(t, store, func(c *watchcache.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
		if change != nil {
			change(c)
		}
	})
	store.put("/registry/pods/a/kept-0", object{Data: "ghost"}.String())
	store.put("/registry/pods/a/ghost", podOnNode("n1"))
	store.del("/registry/pods/a/kept-1")
	store.put("/registry/pods/a/ghost", podOnNode("n2"))
	r.sync()
	return r, log
}

const saved, newest = 5, 9

// after lists what may be written to the store between its restoration and the next access of the
// cache.
var after = map[string][]op{
	"nothing":            nil,
	"less than was lost": {{"/registry/pods/a/new", []byte("{}")}},
	"as much": {
		{"/registry/pods/a/new", []byte("{}")}, {"/registry/pods/a/new", []byte(`{"d":"1"}`)},
		{"/registry/pods/a/new", []byte(`{"d":"2"}`)}, {"/registry/pods/a/ghost", []byte(`{"d":"3"}`)},
	},
	"more": {
		{"/registry/pods/a/new", []byte("{}")}, {"/registry/pods/a/new", []byte(`{"d":"1"}`)}, {"/registry/pods/a/new",
			[]byte(`{"d":"2"}`)},
		{"/registry/pods/a/new", []byte(`{"d":"3"}`)}, {"/registry/pods/a/new", []byte(`{"d":"4"}`)}, {"/registry/pods/a/other", []byte("{}")},
	},
}

// goBack restores the store and writes to it before the cache watches it again. No watch survives
// a restoration.
func (r *rig) goBack(writes []op) {
	synctest.Wait()
	r.store.mu.Lock()
	r.store.rewind(saved)
	r.store.mu.Unlock()
	r.store.breakWatches()
	for _, o := range writes {
		r.store.txn(o)
	}
}

// goBackSilently is like goBack, but no stream ends or reports it.
func (r *rig) goBackSilently(writes []op) {
	synctest.Wait()
	r.store.mu.Lock()
	r.store.rewind(saved)
	r.store.mu.Unlock()
	for _, o := range writes {
		r.store.silent(o)
	}
}

// TestStoreRewindEndsWatches checks that all watches end after the store was restored, whatever is
// written before the next access, and that the cache then shows the contents of the store.
func TestStoreRewindEndsWatches(t *testing.T) {
	for name, writes := range after {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := replacedRig(t, nil)
				watchers := map[string]*watchcache.Watcher{
					"at the end":          r.watch(watchcache.WatchOptions{AfterRevision: newest}),
					"behind":              r.watch(watchcache.WatchOptions{AfterRevision: saved}),
					"of another resource": nil,
					"of a selection": r.watch(watchcache.WatchOptions{
						AfterRevision: newest,
						Selection:     selection(t, "", "", nodeField+"=n1"),
					}),
					"with its state": r.watch(watchcache.WatchOptions{Initial: watchcache.InitialState}),
				}
				var err error
				if watchers["of another resource"], err = r.cache.Store("nodes").Watch(watchcache.WatchOptions{AfterRevision: newest}); err != nil {
					t.Fatal(err)
				}
				defer watchers["of another resource"].Close()
				if _, ok := r.pods.SnapshotAt(saved+2, nil); !ok {
					t.Fatal("no older snapshot before the restoration")
				}
				ghost, _ := r.pods.Get("/registry/pods/a/ghost")
				if _, err := ghost.Encoding(1, func(*objects.Entry) ([]byte, error) { return []byte("x"), nil }); err != nil {
					t.Fatal(err)
				}
				was := r.pods.Snapshot()
				incarnation := r.cache.Incarnation()
				r.goBack(writes)
				synctest.Wait()
				time.Sleep(time.Minute)
				synctest.Wait()

				for name, w := range watchers {
					if _, err := next(r.ctx, w, nil); !isExpired(err) {
						t.Errorf("watcher %s: got %v, want ExpiredError", name, err)
					}
				}
				rev := r.sync()
				sn := r.pods.Snapshot()
				if sn.Revision() != rev || rev != r.store.now() {
					t.Errorf("snapshot at %d, cache at %d, store at %d, want equal revisions", sn.Revision(), rev, r.store.now())
				}
				if got, want := cacheList(sn, objects.Selection{}, ""), modelList(r.store, rev,
					objects.Selection{}, ""); !slices.Equal(got, want) {
					t.Errorf("got\n%q, want\n%q", got, want)
				}
				if !r.cache.Ready() || r.cache.Incarnation() != incarnation+1 || sn.Version() == was.Version() {
					t.Errorf("ready %v, incarnation %d, version %v, want ready in incarnation %d with another version than %v", r.cache.Ready(), r.cache.Incarnation(), sn.Version(), incarnation+1, was.Version())
				}
				if _, ok := r.pods.SnapshotAt(saved+2, nil); ok && rev != saved+2 {
					t.Error("older snapshot is still served")
				}
				if _, ok := ghost.Encoded(1); ok {
					t.Error("encoding of a former entry is kept")
				}
				r.wantMetrics("binnacle_watch_cache_store_replaced_total 1", "binnacle_watch_cache_encodings 0",
					"binnacle_watch_cache_history_bytes 0", "binnacle_watch_cache_images_bytes 0",
					`apiserver_terminated_watchers_total{resource="pods"} 0`)
				if !bytes.Contains(log.Bytes(), []byte("level=ERROR")) || !bytes.Contains(log.Bytes(), []byte("applied=9")) {
					t.Errorf("got log\n%s\nwant an error with applied=9", log)
				}
				// Watches deliver changes from now on.
				w := r.watch(watchcache.WatchOptions{AfterRevision: rev})
				next := r.store.put("/registry/pods/a/next", "{}")
				if got, want := r.drain(w), []string{fmt.Sprintf("ADDED pods/a/next@%d {}", next)}; !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
				if _, err := r.pods.Watch(watchcache.WatchOptions{AfterRevision: saved - 1}); !isExpired(err) {
					t.Errorf("watch from before: got %v, want ExpiredError", err)
				}
			})
		})
	}
}

// A read of the newest state never returns the state before the restoration, even if the stream
// reports nothing. Until the reload the cache serves no request.
func TestReadDetectsStoreRewind(t *testing.T) {
	for name, writes := range after {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held := &heldLoad{release: make(chan struct{})}
				r, _ := replacedRig(t, func(c *watchcache.Config) { held.Source, c.Source = c.Source, held })
				held.hold.Store(true)
				r.goBackSilently(writes)
				if _, err := r.pods.MostRecent(r.ctx); !errors.Is(err, watchcache.ErrNotReady) {
					t.Fatalf("MostRecent: got %v, want ErrNotReady", err)
				}
				synctest.Wait()
				if r.cache.Ready() {
					t.Error("cache is ready during the reload")
				}
				if _, err := r.pods.Watch(watchcache.WatchOptions{Initial: watchcache.InitialState}); !errors.Is(err, watchcache.ErrNotReady) {
					t.Errorf("watch during the reload: got %v, want ErrNotReady", err)
				}
				if _, ok := r.pods.SnapshotAt(newest, nil); ok {
					t.Error("SnapshotAt returned a state from before")
				}
				close(held.release)
				if err := r.cache.WaitReady(r.ctx); err != nil {
					t.Fatal(err)
				}
				r.sync()
				if _, ok := r.pods.Get("/registry/pods/a/kept-1"); !ok {
					t.Error("object deleted after the backup is missing")
				}
				if e, ok := r.pods.Get("/registry/pods/a/kept-0"); !ok || e.Revision != 2 {
					t.Errorf("object changed after the backup is %+v, want revision 2", e)
				}
			})
		})
	}
}

// An idle cache detects the restoration by its periodic check.
func TestIdleCacheDetectsStoreRewind(t *testing.T) {
	for name, writes := range after {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := replacedRig(t, func(c *watchcache.Config) { c.ConfirmEvery = time.Second })
				w := r.watch(watchcache.WatchOptions{AfterRevision: newest})
				r.goBackSilently(writes)
				if _, err := next(r.ctx, w, nil); !isExpired(err) {
					t.Errorf("watcher: got %v, want ExpiredError", err)
				}
				if err := r.cache.WaitReady(r.ctx); err != nil {
					t.Fatal(err)
				}
				if _, ok := r.pods.Get("/registry/pods/a/kept-1"); !ok {
					t.Error("object deleted after the backup is missing")
				}
			})
		})
	}
}

// Broken watches of an unchanged store resume without a reload.
func TestBrokenWatchesResumeWithoutReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := replacedRig(t, nil)
		w := r.watch(watchcache.WatchOptions{AfterRevision: newest})
		var want []string
		for i := range 20 {
			r.store.breakWatches()
			rev := r.store.put("/registry/pods/a/new", fmt.Sprintf(`{"d":"%d"}`, i))
			want = append(want, fmt.Sprintf(`MODIFIED pods/a/new@%d {"d":"%d"}`, rev, i))
			if i%3 == 0 {
				r.store.bump()
			}
			r.sync()
			if i == 10 {
				r.store.compact(rev)
			}
		}
		want[0] = "ADDED" + want[0][len("MODIFIED"):]
		if got := r.drain(w); !slices.Equal(got, want) {
			t.Errorf("got\n%q, want\n%q", got, want)
		}
		r.wantMetrics("binnacle_watch_cache_store_replaced_total 0")
	})
}

// heldLoad is a source whose loads can be blocked.
type heldLoad struct {
	watchcache.Source
	hold    atomic.Bool
	release chan struct{}
}

func (s *heldLoad) Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	if s.hold.Load() {
		select {
		case <-s.release:
		case <-ctx.Done():
		}
	}
	return s.Source.Load(ctx, page)
}

// The store deletes all keys of a lease at one revision. A watch that is interrupted within that
// revision resumes from its last revision and loses no event.
func TestWatchResumesWithinRevision(t *testing.T) {
	const n = 200 // more than a watcher reads at once
	key := func(i int) string { return fmt.Sprintf("/registry/pods/ns%d/p%03d", i%2, i) }
	for _, sel := range []objects.Selection{{}, selection(t, "ns1", "", ""), selection(t, "", "app=yes", "")} {
		r := newRig(t, newMemStore(), nil)
		var deletions []op
		for i := range n {
			r.store.put(key(i), labelled([]string{"yes", "no", "no"}[i%3]))
			deletions = append(deletions, op{key(i), nil})
		}
		start := r.sync()
		end := r.store.txn(deletions...)
		r.sync()
		whole, err := drain(r.ctx, r.watch(watchcache.WatchOptions{Selection: sel, AfterRevision: start}), end, 7)
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
			more, err := drain(r.ctx, r.watch(watchcache.WatchOptions{Selection: sel, AfterRevision: whole[cut-1].Entry.Revision}), end, 50)
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
