package fanout

import (
	"context"
	"fmt"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// startProcessOverEtcd starts a process over a store on etcd.
func startProcessOverEtcd(t *testing.T, store *etcd.Store, id string, servers []string) *process {
	t.Helper()
	o := NewOptions()
	o.Servers = servers
	fanout, err := New(Config{
		Options:   o,
		Store:     store,
		Elector:   etcd.NewElector(store, time.Second),
		Root:      testRoot,
		ID:        id,
		Logger:    quietLog(),
		Heartbeat: 250 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Fanout: fanout, nextBatch: make(chan struct{})}
	at, err := fanout.Load(t.Context(), func([]storage.KeyValue) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	p.from = at.Revision
	p.recorded.applied = at.Revision
	runProcess(t, p)
	return p
}

// readHistoryOf reads the events in (after, until] directly from the store.
func readHistoryOf(t *testing.T, store *etcd.Store, after, until int64) []storage.Event {
	t.Helper()
	watcher, err := store.Watch(t.Context(), testRoot, after)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	var events []storage.Event
	for b := range watcher.Batches() {
		events = append(events, b.Events...)
		if b.Revision >= until {
			return events
		}
	}
	t.Fatalf("the watch ended before revision %d: got error %v, want events", until, watcher.Err())
	return nil
}

// churnObjects creates, updates and deletes objects and returns the revision of the last write.
func churnObjects(t *testing.T, ctx context.Context, store *etcd.Store, round int) int64 {
	t.Helper()
	var rev int64
	for i := range 40 {
		key := fmt.Sprintf("%sthings/%d-%d", testRoot, round, i)
		created, err := store.Create(ctx, key, make([]byte, 2000), storage.WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if rev, err = store.Update(ctx, key, []byte("small"), created, storage.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if rev, err = store.Delete(ctx, key, rev); err != nil {
				t.Fatal(err)
			}
		}
	}
	return rev
}

// TestReplicasFollowEtcd checks that replicas receive etcd's history through one etcd watch, also
// when the publisher changes and a value is too large for NATS.
func TestReplicasFollowEtcd(t *testing.T) {
	server := etcdtest.PrivateServer(t)
	store := etcdtest.NewStore(t, server.Config())
	srv, url := listenNATS(t, 0)
	defer stopNATS(srv)

	ctx := t.Context()
	var replicas []*process
	for _, id := range []string{"p", "a", "b"} {
		p := startProcessOverEtcd(t, store, id, []string{url})
		p.awaitStream(t)
		replicas = append(replicas, p)
	}
	rev := churnObjects(t, ctx, store, 0)
	if _, err := store.Create(ctx, testRoot+"large", make([]byte, 1200<<10), storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	first := replicas[0]
	first.awaitSource(t, sourceLocal)
	first.awaitCondition(t, "the writes", func() bool { return first.recorded.revision() >= rev })
	first.stop()
	rev = churnObjects(t, ctx, store, 1)
	for _, p := range replicas[1:] {
		p.awaitCondition(t, "the writes", func() bool { return p.recorded.revision() >= rev })
		p.awaitStream(t)
	}
	rev = churnObjects(t, ctx, store, 2)
	for _, p := range replicas[1:] {
		p.awaitCondition(t, "the writes", func() bool { return p.recorded.revision() >= rev })
		if err := p.recorded.compareHistory(readHistoryOf(t, store, p.from, rev)); err != nil {
			t.Errorf("%s: %v", p.id, err)
		}
	}
}

// TestProgressReachesRevisionOutsideRootInEtcd checks that Progress reaches a revision outside the
// root without a write to etcd.
func TestProgressReachesRevisionOutsideRootInEtcd(t *testing.T) {
	store := etcdtest.Embedded(t)
	p := startProcessOverEtcd(t, store, "alone", nil)
	p.awaitSource(t, sourceLocal)
	for i := range 20 {
		rev, err := store.Create(t.Context(), fmt.Sprintf("/elsewhere/%d", i), []byte("x"), storage.WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Progress(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.awaitCondition(t, "the revision", func() bool { return p.recorded.revision() >= rev })
	}
}
