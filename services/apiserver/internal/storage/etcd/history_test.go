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

// History that is read without a watch is what a watch tells, in whole revisions, however
// little is read at a time.
func TestChanges(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	store := etcdtest.Store(t, server.Config())
	const prefix = "/registry/pods/"
	from, err := store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewSource(1))
	key := func(i int) string {
		return []string{"/registry/nodes/", prefix, prefix, prefix, "/registry/services/"}[i%5] + fmt.Sprint(i)
	}
	for range 700 { // more revisions than are looked at at a time
		var ops []clientv3.Op
		for _, i := range r.Perm(40)[:1+r.Intn(4)] {
			if r.Intn(3) == 0 {
				ops = append(ops, clientv3.OpDelete(key(i)))
			} else {
				ops = append(ops, clientv3.OpPut(key(i), fmt.Sprintf("%0*d", 1+r.Intn(200), i)))
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
	want := watched(t, store, prefix, from, newest)
	for _, most := range []int{1, 500, 1 << 20} {
		for _, until := range []int64{newest, newest - 100} {
			var got []storage.Event
			steps := 0
			for after := from; after < until; steps++ {
				b, ok, err := store.Changes(t.Context(), prefix, after, until, most)
				if !ok || err != nil || b.Revision <= after || b.Revision > until {
					t.Fatalf("%d bytes after %d: as far as %d, %t, %v", most, after, b.Revision, ok, err)
				}
				for _, e := range b.Events {
					if e.Revision <= after || e.Revision > b.Revision {
						t.Fatalf("%d bytes after %d up to %d: a change at %d", most, after, b.Revision, e.Revision)
					}
				}
				got, after = append(got, b.Events...), b.Revision
			}
			n := 0
			for n < len(want) && want[n].Revision <= until {
				n++
			}
			if !reflect.DeepEqual(got, want[:n]) {
				t.Errorf("%d bytes at a time up to %d: %d changes are not the %d that a watch tells", most, until, len(got), n)
			}
			if most == 1 && steps < 500 || most == 1<<20 && steps != 1 {
				t.Errorf("%d bytes at a time took %d steps", most, steps)
			}
		}
	}
	if err := store.Compact(t.Context(), from+300); err != nil {
		t.Fatal(err)
	}
	var gone *storage.CompactedError
	if _, ok, err := store.Changes(t.Context(), prefix, from+298, newest, 1<<20); !ok || !errors.As(err, &gone) || gone.Oldest != from+300 {
		t.Errorf("before the compaction: %t, %v", ok, err)
	}
	if _, ok, err := store.Changes(t.Context(), prefix, from+300, newest, 1<<20); !ok || err != nil {
		t.Errorf("after the compaction: %t, %v", ok, err)
	}
}

// An etcd elsewhere leaves it to watches.
func TestChangesElsewhere(t *testing.T) {
	store := etcdtest.External(t)
	if _, ok, err := store.Changes(t.Context(), "/registry/", 0, 1, 1); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
}

// watched is what a watch tells.
func watched(t *testing.T, store storage.Interface, prefix string, after, until int64) (events []storage.Event) {
	t.Helper()
	w, err := store.Watch(t.Context(), prefix, after)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := w.Progress(t.Context()); err != nil {
		t.Fatal(err)
	}
	for b := range w.Batches() {
		events = append(events, b.Events...)
		if b.Revision >= until {
			return events
		}
	}
	t.Fatal(w.Err())
	return nil
}
