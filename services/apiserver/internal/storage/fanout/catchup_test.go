package fanout

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestReplicaFarBehindCatchesUp checks that a replica that is far behind receives every change once
// and in order, despite concurrent writes, revisions with several changes or none below the root, and
// broken watches.
func TestReplicaFarBehindCatchesUp(t *testing.T) {
	suite := newSuite(t, 1, 1<<20)
	from := suite.store.newest()

	// 1. Write more than a single watch reads (minCatchUpLag). Some slices have no change below the
	// root, because more revisions than sliceRevisions in a row are outside. Some values have 1 MiB.
	// The other revisions change 1 to 3 keys.
	const writes = 7000
	for i := range writes {
		switch {
		case i%2500 == 0:
			for range 1500 {
				suite.store.writeOutsideRoot()
			}
		case i%1000 == 999:
			suite.store.write(1, 1<<20)
		default:
			suite.store.write(1+i%3, 20)
		}
	}

	// 2. Catch up. Meanwhile, write more from time to time, and break the watches while the replica
	// receives the events after the 3000th. apply records its errors for compareHistory.
	feed := newFeed(suite.store, testRoot, 1, quietLog())
	go feed.run(t.Context(), storage.Position{Revision: from})
	recorded := replicaLog{applied: from}
	for recorded.applied < suite.store.newest() {
		_ = recorded.apply(<-feed.batches)
		if n := len(recorded.events); n%50 == 0 && n < writes {
			suite.store.write(1, 20)
		}
		if n := len(recorded.events); n > 3000 && n < 3100 {
			suite.store.breakWatches()
		}
	}
	if err := recorded.compareHistory(suite.store.historySince(from)); err != nil {
		t.Error(err)
	}
}

// TestCatchUpDeliversSameEventsFromSlicesAndHistory checks that a replica that catches up with etcd receives the same events from
// watches of slices as from the history, and in the expected number of batches.
func TestCatchUpDeliversSameEventsFromSlicesAndHistory(t *testing.T) {
	store := etcdtest.Embedded(t)
	from, err := store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for w := range 32 {
		writers.Go(func() {
			for i := range minCatchUpLag / 20 {
				key := fmt.Sprintf("%sthings/%d-%d", testRoot, w, i)
				if i%5 == 4 {
					key = fmt.Sprintf("/elsewhere/%d-%d", w, i)
				}
				if _, err := store.Create(t.Context(), key, []byte(key), storage.WriteOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	rev, err := store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := readHistoryOf(t, store, from, rev)
	for name, source := range map[string]struct {
		store   storage.Interface
		batches int
	}{
		// The embedded interface hides that the store is a HistoryReader, so the feed uses watches.
		"by slices":       {store: struct{ storage.Interface }{store}, batches: int(rev-from+sliceRevisions-1) / sliceRevisions},
		"through history": {store: store, batches: 1},
	} {
		t.Run(name, func(t *testing.T) {
			feed := newFeed(source.store, testRoot, 1, quietLog())
			go feed.run(t.Context(), storage.Position{Revision: from})
			recorded := replicaLog{applied: from}
			batches := 0
			for recorded.applied < rev {
				_ = recorded.apply(<-feed.batches)
				batches++
			}
			if err := recorded.compareHistory(want); err != nil {
				t.Error(err)
			}
			if batches != source.batches {
				t.Errorf("got %d batches, want %d", batches, source.batches)
			}
		})
	}
}

// resumeRecorder records the revisions from which watches resume.
type resumeRecorder struct {
	*etcd.Store
	after chan int64
}

func (b resumeRecorder) Resume(ctx context.Context, prefix string, after storage.Position) (storage.Watcher, error) {
	b.after <- after.Revision
	return b.Store.Resume(ctx, prefix, after)
}

// TestCatchUpOfFewChangesNeedsNoWatch checks that missed changes are read without a watch, however
// few they are, because etcd delays a watch that starts in the past by up to 100 ms.
func TestCatchUpOfFewChangesNeedsNoWatch(t *testing.T) {
	store := resumeRecorder{etcdtest.Embedded(t), make(chan int64, 1)}
	from, err := store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := store.Create(t.Context(), fmt.Sprintf("%sthings/%d", testRoot, i),
			[]byte("x"), storage.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	feed := newFeed(store, testRoot, 1, quietLog())
	go feed.run(t.Context(), storage.Position{Revision: from})
	recorded := replicaLog{applied: from}
	_ = recorded.apply(<-feed.batches)
	if err := recorded.compareHistory(readHistoryOf(t, store.Store, from, from+3)); err != nil {
		t.Error(err)
	}
	if after := <-store.after; after != from+3 {
		t.Errorf("watch resumed after %d, want %d", after, from+3)
	}
}
