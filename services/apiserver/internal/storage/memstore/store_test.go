package memstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/memstore"
	"binnacle/services/apiserver/internal/storage/storagetest"
)

// TestMain fails if a test leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openStore(t *testing.T) *memstore.Store {
	s := memstore.New()
	t.Cleanup(s.Close)
	return s
}

// TestConformance runs the conformance suite.
func TestConformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Interface { return openStore(t) })
}

func mustCreate(t *testing.T, s *memstore.Store, key, value string, opts storage.WriteOptions) int64 {
	t.Helper()
	revision, err := s.Create(t.Context(), key, []byte(value), opts)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// TestValuesExpireInOrderOfTheirLifetimes checks that each value is deleted at the end of its TTL.
func TestValuesExpireInOrderOfTheirLifetimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		watcher, err := s.Watch(t.Context(), "/registry/", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Stop()
		start := time.Now()
		for key, ttl := range map[string]time.Duration{
			"/registry/c": 3 * time.Hour, "/registry/a": time.Hour, "/registry/b": 2 * time.Hour,
		} {
			mustCreate(t, s, key, "v", storage.WriteOptions{TTL: ttl})
		}
		var expiredKeys []string
		for len(expiredKeys) < 3 {
			for _, e := range (<-watcher.Batches()).Events {
				if e.Type == storage.Deleted {
					expiredKeys = append(expiredKeys, e.Key)
					if want := time.Duration(len(expiredKeys)) * time.Hour; time.Since(start) != want {
						t.Errorf("%s expired after %s, want %s", e.Key, time.Since(start), want)
					}
				}
			}
		}
		if !slices.Equal(expiredKeys, []string{"/registry/a", "/registry/b", "/registry/c"}) {
			t.Errorf("got keys expired in the order %v, want a, b, c", expiredKeys)
		}
	})
}

// TestCompactEveryKeepsOneInterval checks that history older than one interval is compacted.
func TestCompactEveryKeepsOneInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := openStore(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- store.CompactEvery(ctx, time.Minute) }()
		first := mustCreate(t, store, "/registry/a", "v", storage.WriteOptions{})
		time.Sleep(time.Minute)
		synctest.Wait()
		second := mustCreate(t, store, "/registry/b", "v", storage.WriteOptions{})
		for range 2 {
			time.Sleep(time.Minute)
			synctest.Wait()
			if oldest, newest, err := store.History(t.Context()); err != nil || newest != second {
				t.Fatalf("History = %d, %d, %v, want newest %d", oldest, newest, err, second)
			} else if _, _, err := store.Get(t.Context(), "/registry/a", oldest); err != nil {
				t.Errorf("read at the oldest revision %d: %v", oldest, err)
			}
		}
		var compacted *storage.CompactedError
		if _, _, err := store.Get(t.Context(), "/registry/a", first); !errors.As(err, &compacted) || compacted.OldestRevision != second {
			t.Errorf("read at %d, two intervals later: got %v, want CompactedError", first, err)
		}
		time.Sleep(time.Minute) // nothing changed, so there is nothing to compact
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWatchDeliversChangesThatAreCompactedMeanwhile checks that a slow watch gets changes that are
// compacted before it delivers them.
func TestWatchDeliversChangesThatAreCompactedMeanwhile(t *testing.T) {
	store := openStore(t)
	watcher, err := store.Watch(t.Context(), "/registry/", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	const changes = 20_000 // more than the batches that wait for the receiver
	var last int64
	for i := range changes {
		key := "/registry/" + string(rune('a'+i%26))
		last = mustCreate(t, store, key, "v", storage.WriteOptions{})
		if i%26 == 25 {
			if err := store.Compact(t.Context(), last); err != nil {
				t.Fatal(err)
			}
		}
		if last, err = store.Delete(t.Context(), key, last); err != nil {
			t.Fatal(err)
		}
	}
	for next := int64(2); next <= last; {
		for _, e := range (<-watcher.Batches()).Events {
			if e.Revision != next {
				t.Fatalf("got an event at %d, want %d", e.Revision, next)
			}
			next++
		}
	}
}

// TestChangesEndWithAWholeRevisionAtTheByteLimit checks that Changes returns whole revisions up to
// the byte limit, and rejects compacted ones.
func TestChangesEndWithAWholeRevisionAtTheByteLimit(t *testing.T) {
	store := openStore(t)
	first := mustCreate(t, store, "/registry/pods/a", "0123456789", storage.WriteOptions{})
	mustCreate(t, store, "/registry/services/b", "v", storage.WriteOptions{})
	last := mustCreate(t, store, "/registry/pods/c", "v", storage.WriteOptions{})
	for bytes, want := range map[int]int64{1: first, 1000: last} {
		b, ok, err := store.Changes(t.Context(), "/registry/pods/", 0, last, bytes)
		if !ok || err != nil || b.Revision != want || b.Events[len(b.Events)-1].Revision != want {
			t.Errorf("%d bytes: got %+v, %v, %v, want up to %d", bytes, b, ok, err, want)
		}
	}
	if err := store.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	var compacted *storage.CompactedError
	if _, _, err := store.Changes(t.Context(), "/registry/", first, last, 1000); !errors.As(err, &compacted) {
		t.Errorf("changes after a compacted revision: got %v, want CompactedError", err)
	}
}

// TestWrittenValueIsIndependentOfTheCallersBuffer checks that the caller may change its buffer
// after a write.
func TestWrittenValueIsIndependentOfTheCallersBuffer(t *testing.T) {
	s := openStore(t)
	value := []byte("before")
	if _, err := s.Create(t.Context(), "/registry/a", value, storage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	copy(value, "change")
	if kv, _, err := s.Get(t.Context(), "/registry/a", 0); err != nil || string(kv.Value) != "before" {
		t.Errorf("got %q, %v, want before", kv.Value, err)
	}
}
