package etcd_test

import (
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestChangesReturnsEventsOfWatch checks that changes returns the same events as a watch, in whole revisions,
// with any byte limit.
func TestChangesReturnsEventsOfWatch(t *testing.T) {
	t.Parallel()
	server := etcdtest.PrivateServer(t)
	store := etcdtest.NewStore(t, server.Config())
	const prefix = "/registry/pods/"
	from, err := store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewSource(1))
	key := func(i int) string {
		return []string{"/registry/nodes/", prefix, prefix, prefix, "/registry/services/"}[i%5] + fmt.Sprint(i)
	}
	for range 700 { // more revisions than one read examines
		var ops []clientv3.Op
		for _, i := range random.Perm(40)[:1+random.Intn(4)] {
			if random.Intn(3) == 0 {
				ops = append(ops, clientv3.OpDelete(key(i)))
			} else {
				ops = append(ops, clientv3.OpPut(key(i), fmt.Sprintf("%0*d", 1+random.Intn(200), i)))
			}
		}
		if _, err := server.Client().Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	newest, err := store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := watchRange(t, store, prefix, from, newest)
	for _, maximum := range []int{1, 500, 1 << 20} {
		for _, until := range []int64{newest, newest - 100} {
			var got []storage.Event
			steps := 0
			for after := from; after < until; steps++ {
				b, ok, err := store.Changes(t.Context(), prefix, after, until, maximum)
				if !ok || err != nil || b.Revision <= after || b.Revision > until {
					t.Fatalf("%d bytes after %d: got revision %d, %t, %v, want one up to %d", maximum, after, b.Revision, ok, err, until)
				}
				for _, e := range b.Events {
					if e.Revision <= after || e.Revision > b.Revision {
						t.Fatalf("%d bytes: got a change at %d, want one after %d and up to %d", maximum, e.Revision, after, b.Revision)
					}
				}
				got = append(got, b.Events...)
				after = b.Revision
			}
			n := 0
			for n < len(want) && want[n].Revision <= until {
				n++
			}
			if !reflect.DeepEqual(got, want[:n]) {
				t.Errorf("%d bytes at a time up to %d: got %d changes that differ from the %d of a watch", maximum, until, len(got), n)
			}
			if maximum == 1 && steps < 500 || maximum == 1<<20 && steps != 1 {
				t.Errorf("%d bytes at a time: got %d steps, want at least 500 for 1 byte, and 1 for 1 MiB", maximum, steps)
			}
		}
	}
	if err := store.Compact(t.Context(), from+300); err != nil {
		t.Fatal(err)
	}
	var gone *storage.CompactedError
	if _, ok, err := store.Changes(t.Context(), prefix, from+298, newest, 1<<20); !ok ||
		!errors.As(err, &gone) ||
		gone.OldestRevision != from+300 {
		t.Errorf("before the compaction: got %t, %v, want CompactedError", ok, err)
	}
	for _, after := range []int64{from + 299, from + 300} {
		if _, ok, err := store.Changes(t.Context(), prefix, after, newest, 1<<20); !ok || err != nil {
			t.Errorf("after %d, compacted to %d: got %t, %v, want the changes", after, from+300, ok, err)
		}
	}
}

// TestChangesUnsupportedByExternalEtcd checks that an external etcd does not support reads of
// history.
func TestChangesUnsupportedByExternalEtcd(t *testing.T) {
	store := etcdtest.OpenExternalEmptied(t)
	if _, ok, err := store.Changes(t.Context(), "/registry/", 0, 1, 1); ok || err != nil {
		t.Errorf("got %t, %v, want false", ok, err)
	}
}

// watchRange returns the events of a watch in (after, until].
func watchRange(t *testing.T, store storage.Interface, prefix string, after, until int64) (events []storage.Event) {
	t.Helper()
	watcher, err := store.Watch(t.Context(), prefix, after)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if err := watcher.Progress(t.Context()); err != nil {
		t.Fatal(err)
	}
	for b := range watcher.Batches() {
		events = append(events, b.Events...)
		if b.Revision >= until {
			return events
		}
	}
	t.Fatal(watcher.Err())
	return nil
}
