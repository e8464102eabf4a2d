package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// TestConcurrentReadsWritesAndWatches runs writers, readers and watchers concurrently. It checks
// that every snapshot equals the history at its revision, that no watcher receives an event before
// the store shows it, and that each receives exactly its events.
func TestConcurrentReadsWritesAndWatches(t *testing.T) {
	store := newMemStore()
	store.putKey("/registry/pods/a/first", podOnNode("n0"))
	rig := newRig(t, store, nil)
	selections := []objects.Selection{
		{}, selection(t, "a", "", ""), selection(t, "", "", "spec.nodeName=n1"), selection(t, "", "app=yes", ""),
		selection(t, "", "", "metadata.name=1"), selection(t, "", "", "spec.nodeName!=n1"),
	}
	writing, written := context.WithCancel(rig.ctx)
	defer written()
	var writers, others sync.WaitGroup
	for range 2 {
		writers.Go(func() { writeAtRandom(store, 300) })
	}
	for i := range 4 {
		others.Go(func() {
			for writing.Err() == nil {
				sel := selections[rand.IntN(len(selections))]
				if err := readAtRandom(rig, sel, i%2 == 1); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 3 * len(selections) {
		sel := selections[i%len(selections)]
		w := rig.watch(watchcache.WatchOptions{Selection: sel, AfterRevision: 2})
		others.Go(func() {
			got, err := followUntil(rig, w, writing, 1+i)
			if err != nil {
				t.Error(err)
				return
			}
			if want := modelEvents(store, 2, store.newestRevision(), sel); !slices.Equal(got, want) {
				t.Errorf("watcher of %+v:\n got %q\nwant %q", sel, got, want)
			}
		})
	}
	writers.Wait()
	rig.awaitWrites()
	written()
	others.Wait()
}

// writeAtRandom writes and deletes n random objects.
func writeAtRandom(store *memStore, n int) {
	for range n {
		key := fmt.Sprintf("/registry/pods/%c/%d", 'a'+rune(rand.IntN(3)), rand.IntN(4))
		if rand.IntN(4) == 0 {
			store.deleteKey(key)
			continue
		}
		store.putKey(key, object{
			Labels: map[string]string{"app": []string{"yes", "no"}[rand.IntN(2)]},
			Fields: map[string]string{nodeField: fmt.Sprintf("n%d", rand.IntN(3))},
		}.String())
	}
}

// readAtRandom compares a snapshot with the model.
func readAtRandom(r *rig, sel objects.Selection, older bool) error {
	sn := r.pods.Snapshot()
	if older {
		var ok bool
		at := max(2, sn.Revision()-rand.Int64N(20))
		if sn, ok = r.pods.SnapshotAt(at, nil); !ok {
			return fmt.Errorf("at %d: got no snapshot, want one", at)
		}
	}
	want := modelList(r.store, sn.Revision(), sel, "")
	if got := cacheList(sn, sel, ""); !slices.Equal(got, want) {
		return fmt.Errorf("list of %+v at %d:\n got %q\nwant %q", sel, sn.Revision(), got, want)
	}
	return nil
}

// followUntil follows a watcher until a context ends and then reads the remaining events.
func followUntil(r *rig, w *watchcache.Watcher, until context.Context, size int) ([]string, error) {
	var got []string
	for {
		evs, err := nextEvents(until, w, make([]watchcache.Event, 0, size))
		if errors.Is(err, context.Canceled) {
			evs, err = drain(r.ctx, w, r.store.newestRevision(), size)
			return append(got, formatEvents(evs)...), err
		}
		if err != nil {
			return nil, err
		}
		for _, ev := range evs {
			if e, ok := r.pods.Get(ev.Entry.Key()); ok && e.Revision < ev.Revision {
				return nil, fmt.Errorf("got event of %s at %d, want one at the store's revision %d", e.Key(), ev.Revision, e.Revision)
			}
			if rev := r.pods.Snapshot().Revision(); rev < ev.Revision {
				return nil, fmt.Errorf("got event at %d, want none after the store's revision %d", ev.Revision, rev)
			}
		}
		got = append(got, formatEvents(evs)...)
	}
}
