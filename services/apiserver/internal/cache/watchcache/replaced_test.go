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

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/storage"
)

// replacedRig has a cache whose store was at 5 when it was saved and is at 9.
func replacedRig(t *testing.T, change func(*watchcache.Config)) (*rig, *bytes.Buffer) {
	t.Helper()
	store := newMemStore()
	for i := range 4 {
		store.put(fmt.Sprintf("/registry/pods/a/kept-%d", i), onNode("n1"))
	}
	log := &bytes.Buffer{}
	r := newRig(t, store, func(c *watchcache.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
		if change != nil {
			change(c)
		}
	})
	store.put("/registry/pods/a/kept-0", object{Data: "ghost"}.String())
	store.put("/registry/pods/a/ghost", onNode("n1"))
	store.del("/registry/pods/a/kept-1")
	store.put("/registry/pods/a/ghost", onNode("n2"))
	r.sync()
	return r, log
}

const saved, newest = 5, 9

// after is what may be written to the store before it comes back.
var after = map[string][]op{
	"nothing":            nil,
	"less than was lost": {{"/registry/pods/a/new", []byte("{}")}},
	"as much": {
		{"/registry/pods/a/new", []byte("{}")}, {"/registry/pods/a/new", []byte(`{"d":"1"}`)},
		{"/registry/pods/a/new", []byte(`{"d":"2"}`)}, {"/registry/pods/a/ghost", []byte(`{"d":"3"}`)},
	},
	"more": {
		{"/registry/pods/a/new", []byte("{}")}, {"/registry/pods/a/new", []byte(`{"d":"1"}`)}, {"/registry/pods/a/new", []byte(`{"d":"2"}`)},
		{"/registry/pods/a/new", []byte(`{"d":"3"}`)}, {"/registry/pods/a/new", []byte(`{"d":"4"}`)}, {"/registry/pods/a/other", []byte("{}")},
	},
}

// goBack restores the store and writes to it before anybody watches it again: no
// watch outlives a restoration.
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

// goBackSilently is goBack of which no stream tells, not even one that was about to
// look.
func (r *rig) goBackSilently(writes []op) {
	synctest.Wait()
	r.store.mu.Lock()
	r.store.rewind(saved)
	r.store.mu.Unlock()
	for _, o := range writes {
		r.store.silent(o)
	}
}

// TestStoreGoesBack: whatever was written to a store that was restored before
// anybody looks, all watches end, and what is shown is what the store holds now.
func TestStoreGoesBack(t *testing.T) {
	for name, writes := range after {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := replacedRig(t, nil)
				watchers := map[string]*watchcache.Watcher{
					"at the end":          r.watch(watchcache.WatchOptions{After: newest}),
					"behind":              r.watch(watchcache.WatchOptions{After: saved}),
					"of another resource": nil,
					"of a selection":      r.watch(watchcache.WatchOptions{After: newest, Selection: selection(t, "", "", nodeField+"=n1")}),
					"with its state":      r.watch(watchcache.WatchOptions{Initial: watchcache.InitialState}),
				}
				var err error
				if watchers["of another resource"], err = r.cache.Store("nodes").Watch(watchcache.WatchOptions{After: newest}); err != nil {
					t.Fatal(err)
				}
				defer watchers["of another resource"].Close()
				if _, ok := r.pods.SnapshotAt(saved+2, nil); !ok {
					t.Fatal("no older state before")
				}
				ghost, _ := r.pods.Get("/registry/pods/a/ghost")
				if _, err := ghost.Encoding(1, func(*watchcache.Entry) ([]byte, error) { return []byte("x"), nil }); err != nil {
					t.Fatal(err)
				}
				was, era := r.pods.Snapshot(), r.cache.Era()
				r.goBack(writes)
				synctest.Wait()
				time.Sleep(time.Minute)
				synctest.Wait()

				for name, w := range watchers {
					if _, err := next(r.ctx, w, nil); !expired(err) {
						t.Errorf("a watcher %s: %v", name, err)
					}
				}
				rev := r.sync()
				sn := r.pods.Snapshot()
				if sn.Revision() != rev || rev != r.store.now() {
					t.Errorf("shows %d at %d, the store is at %d", sn.Revision(), rev, r.store.now())
				}
				if got, want := cacheList(sn, watchcache.Selection{}, ""), modelList(r.store, rev, watchcache.Selection{}, ""); !slices.Equal(got, want) {
					t.Errorf("shows\n%q, want\n%q", got, want)
				}
				if !r.cache.Ready() || r.cache.Era() != era+1 || sn.Version() == was.Version() {
					t.Errorf("ready %v, era %d after %d", r.cache.Ready(), r.cache.Era(), era)
				}
				if _, ok := r.pods.SnapshotAt(saved+2, nil); ok && rev != saved+2 {
					t.Error("an older state is known still")
				}
				if _, ok := ghost.Encoded(1); ok {
					t.Error("an encoding is kept of what is no more")
				}
				r.wantMetrics("binnacle_watch_cache_store_replaced_total 1", "binnacle_watch_cache_encodings 0",
					"binnacle_watch_cache_history_bytes 0", "binnacle_watch_cache_images_bytes 0",
					`apiserver_terminated_watchers_total{resource="pods"} 0`)
				if !bytes.Contains(log.Bytes(), []byte("level=ERROR")) || !bytes.Contains(log.Bytes(), []byte("applied=9")) {
					t.Errorf("log:\n%s", log)
				}
				// What happens from now on is told.
				w := r.watch(watchcache.WatchOptions{After: rev})
				next := r.store.put("/registry/pods/a/next", "{}")
				if got, want := r.drain(w), []string{fmt.Sprintf("ADDED pods/a/next@%d {}", next)}; !slices.Equal(got, want) {
					t.Errorf("told %q, want %q", got, want)
				}
				if _, err := r.pods.Watch(watchcache.WatchOptions{After: saved - 1}); !expired(err) {
					t.Errorf("a watch from before: %v", err)
				}
			})
		})
	}
}

// Who reads the newest state never gets one of before the restoration, though the
// stream tells nothing, nor does the cache answer anything until it is loaded anew.
func TestReadsFindThatTheStoreWentBack(t *testing.T) {
	for name, writes := range after {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held := &heldLoad{let: make(chan struct{})}
				r, _ := replacedRig(t, func(c *watchcache.Config) { held.Source, c.Source = c.Source, held })
				held.hold.Store(true)
				r.goBackSilently(writes)
				if _, err := r.pods.MostRecent(r.ctx); !errors.Is(err, watchcache.ErrNotReady) {
					t.Fatalf("the newest state: %v", err)
				}
				synctest.Wait()
				if r.cache.Ready() {
					t.Error("ready while it is loaded anew")
				}
				if _, err := r.pods.Watch(watchcache.WatchOptions{Initial: watchcache.InitialState}); !errors.Is(err, watchcache.ErrNotReady) {
					t.Errorf("a watch while it is loaded anew: %v", err)
				}
				if _, ok := r.pods.SnapshotAt(newest, nil); ok {
					t.Error("an exact state of before")
				}
				close(held.let)
				if err := r.cache.WaitReady(r.ctx); err != nil {
					t.Fatal(err)
				}
				r.sync()
				if _, ok := r.pods.Get("/registry/pods/a/kept-1"); !ok {
					t.Error("what was deleted since is not there again")
				}
				if e, ok := r.pods.Get("/registry/pods/a/kept-0"); !ok || e.Revision != 2 {
					t.Errorf("what was changed since is %+v", e)
				}
			})
		})
	}
}

// Without any read and any news, it is found by looking now and then.
func TestIdleCacheFindsThatTheStoreWentBack(t *testing.T) {
	for name, writes := range after {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := replacedRig(t, func(c *watchcache.Config) { c.ConfirmEvery = time.Second })
				w := r.watch(watchcache.WatchOptions{After: newest})
				r.goBackSilently(writes)
				if _, err := next(r.ctx, w, nil); !expired(err) {
					t.Errorf("a watcher: %v", err)
				}
				if err := r.cache.WaitReady(r.ctx); err != nil {
					t.Fatal(err)
				}
				if _, ok := r.pods.Get("/registry/pods/a/kept-1"); !ok {
					t.Error("what was deleted since is not there again")
				}
			})
		})
	}
}

// A store that is as it was, however often its watches break, is not loaded anew.
func TestSameHistoryGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := replacedRig(t, nil)
		w := r.watch(watchcache.WatchOptions{After: newest})
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
			t.Errorf("told\n%q, want\n%q", got, want)
		}
		r.wantMetrics("binnacle_watch_cache_store_replaced_total 0")
	})
}

// heldLoad is a source whose loads can be held up.
type heldLoad struct {
	watchcache.Source
	hold atomic.Bool
	let  chan struct{}
}

func (s *heldLoad) Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Place, error) {
	if s.hold.Load() {
		select {
		case <-s.let:
		case <-ctx.Done():
		}
	}
	return s.Source.Load(ctx, page)
}
