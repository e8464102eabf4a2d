package etcd_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestCompactorsShareRounds checks that two compactors share the rounds. Each round is won once,
// writes the revision that its winner saw one round earlier, and compacts history up to it.
func TestCompactorsShareRounds(t *testing.T) {
	server := etcdtest.PrivateServer(t)
	store := etcdtest.NewStore(t, server.Config())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first, err := store.Create(ctx, "/registry/pods/a", nil, storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rounds := server.Client().Watch(ctx, "compact_rev_key", clientv3.WithRev(first+1), clientv3.WithCreatedNotify())
	<-rounds
	running, stop := context.WithCancel(ctx)
	var group errgroup.Group
	for range 2 {
		c := &etcd.Compactor{Store: store, Interval: 20 * time.Millisecond}
		group.Go(func() error { return c.Run(running) })
	}
	var versions, before int64
	for versions < 6 {
		resp, ok := <-rounds
		if !ok || resp.Err() != nil {
			t.Fatalf("watch ended after %d rounds: %v", versions, resp.Err())
		}
		for _, e := range resp.Events {
			versions++
			if e.Kv.Version != versions {
				t.Fatalf("got version %d, want %d", e.Kv.Version, versions)
			}
			rev, err := strconv.ParseInt(string(e.Kv.Value), 10, 64)
			if err != nil || rev < before || rev >= e.Kv.ModRevision {
				t.Fatalf("round %d: got compaction to %q, want a revision from %d to %d", versions, e.Kv.Value, before, e.Kv.ModRevision-1)
			}
			before = rev
		}
	}
	stop()
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	var gone *storage.CompactedError
	if _, _, err := store.Get(ctx, "/registry/pods/a", first-1); !errors.As(err, &gone) || gone.OldestRevision == 0 {
		t.Fatalf("read of compacted history: got %v, want CompactedError", err)
	}
	if _, _, err := store.Get(ctx, "/registry/pods/a", 0); err != nil {
		t.Fatal(err)
	}
}

// TestCompactorWithoutIntervalOnlyWaits checks that a Compactor without an interval only waits until its
// context ends.
func TestCompactorWithoutIntervalOnlyWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&etcd.Compactor{Store: etcdtest.Embedded(t)}).Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestHistoryStartsAtCompaction checks that History reports the revision of the last compaction, from
// which on reads succeed.
func TestHistoryStartsAtCompaction(t *testing.T) {
	store := etcdtest.Embedded(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	created, err := store.Create(ctx, "/registry/pods/a", []byte("v"), storage.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if oldest, newest, err := store.History(ctx); err != nil || oldest != 0 || newest != created {
		t.Errorf("before any compaction: got history from %d to %d, %v, want from 0 to %d", oldest, newest, err, created)
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- (&etcd.Compactor{Store: store, Interval: 10 * time.Millisecond}).Run(running) }()
	var oldest, newest int64
	for oldest < created { // the first rounds compact nothing
		if oldest, _, err = store.History(ctx); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	oldest, newest, err = store.History(ctx)
	if err != nil || oldest > newest {
		t.Fatalf("History: got %d, %d, %v, want oldest at most newest", oldest, newest, err)
	}
	if _, _, err := store.Get(ctx, "/registry/pods/a", oldest); err != nil {
		t.Errorf("read at %d: %v", oldest, err)
	}
}
