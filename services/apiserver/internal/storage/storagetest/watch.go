package storagetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"binnacle/services/apiserver/internal/storage"
)

var watchTests = []test{
	{"DeliversCreatedUpdatedAndDeleted", func(s *suite) {
		start := s.revision()
		w := s.watch("/registry/pods/", start)
		a := s.create("/registry/pods/a", "v1")
		a2 := s.update("/registry/pods/a", "v2", a)
		d := s.delete("/registry/pods/a", a2)
		again := s.create("/registry/pods/a", "v3")
		expected := []storage.Event{
			{Type: storage.Created, Key: "/registry/pods/a", Revision: a, CreateRevision: a, Value: []byte("v1")},
			{Type: storage.Updated, Key: "/registry/pods/a", Revision: a2, CreateRevision: a, Value: []byte("v2")},
			{Type: storage.Deleted, Key: "/registry/pods/a", Revision: d},
			{Type: storage.Created, Key: "/registry/pods/a", Revision: again, CreateRevision: again, Value: []byte("v3")},
		}
		if got := w.nextEvents(4); !reflect.DeepEqual(got, expected) {
			s.Fatalf("new events: got %+v, want %+v", got, expected)
		}
		if got := s.watch("/registry/pods/", start).nextEvents(4); !reflect.DeepEqual(got, expected) {
			s.Fatalf("from history: got %+v, want %+v", got, expected)
		}
	}},
	{"StartsAfterRevision", func(s *suite) {
		var revs []int64
		for i := range 4 {
			revs = append(revs, s.create(podKey(i), "v"))
		}
		for i, after := range revs[:3] {
			got := s.watch("/registry/pods/", after).nextEvents(3 - i)
			if got[0].Revision != revs[i+1] {
				s.Fatalf("watch after %d begins at %d, want %d", after, got[0].Revision, revs[i+1])
			}
		}
	}},
	{"RevisionZeroStartsAtBeginning", func(s *suite) {
		s.create("/registry/pods/a", "v")
		if got := s.watch("/registry/pods/", 0).nextEvents(1); got[0].Key != "/registry/pods/a" {
			s.Fatalf("got events %+v, want one of /registry/pods/a", got)
		}
	}},
	{"FutureStartWaits", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		w := s.watch("/registry/pods/", rev+2)
		for i := range 3 {
			rev = s.update("/registry/pods/a", fmt.Sprint(i), rev)
		}
		if got := w.nextEvents(1); got[0].Revision != rev {
			s.Fatalf("first event is at %d, want %d", got[0].Revision, rev)
		}
	}},
	{"PrefixBoundaries", func(s *suite) {
		start := s.revision()
		w := s.watch("/registry/pods/", start)
		for _, k := range []string{"/registry/podtemplates/a", "/registry/pods", "/registry/pods0", "/registry/pod"} {
			s.create(k, "v")
		}
		s.create("/registry/pods/a", "v")
		if got := w.nextEvents(1); got[0].Key != "/registry/pods/a" {
			s.Fatalf("got events %+v, want one of /registry/pods/a", got)
		}
	}},
	{"RejectedWritesCauseNoEvents", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		w := s.watch("/registry/pods/", rev)
		if _, err := s.store.Create(s.ctx, "/registry/pods/a", []byte("v2"), storage.WriteOptions{}); err == nil {
			s.Fatal("an existing key was created")
		}
		if _, err := s.store.Update(s.ctx, "/registry/pods/a", []byte("v2"), rev+5, storage.WriteOptions{}); err == nil {
			s.Fatal("another revision was updated")
		}
		next := s.update("/registry/pods/a", "v3", rev)
		if got := w.nextEvents(1); got[0].Revision != next || string(got[0].Value) != "v3" {
			s.Fatalf("got event %+v, want value v3 at %d", got[0], next)
		}
	}},
	{"ProgressWhenIdle", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		s.wantProgress(s.watch("/registry/pods/", rev), rev)
	}},
	{"ProgressAfterEvents", func(s *suite) {
		w := s.watch("/registry/pods/", s.revision())
		rev := s.create("/registry/pods/a", "v1")
		w.nextEvents(1)
		s.wantProgress(w, rev)
	}},
	{"ProgressOverOtherKeys", func(s *suite) {
		w := s.watch("/registry/pods/", s.revision())
		for i := range 3 {
			rev := s.create(fmt.Sprintf("/registry/services/%d", i), "v1")
			s.wantProgress(w, rev)
		}
	}},
	{"ProgressWhileReplaying", func(s *suite) {
		start := s.revision()
		var rev int64
		for i := range 500 {
			rev = s.create(podKey(i), "v")
		}
		w := s.watch("/registry/pods/", start)
		s.wantProgress(w, rev)
	}},
	{"ProgressFollowsItsEvents", progressAfterEvents},
	{"EachEventIsDeliveredOnce", eachEventOnce},
	{"SlowReceiverMissesNothing", func(s *suite) {
		start := s.revision()
		w := s.watch("/registry/pods/", start)
		const n = 2500
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := g; i < n; i += 8 {
					if _, err := s.store.Create(s.ctx, podKey(i), []byte("v"), storage.WriteOptions{}); err != nil {
						s.Errorf("create: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		w.nextEvents(n)
	}},
	{"StopEndsWatch", func(s *suite) {
		w := s.watch("/registry/pods/", 0)
		w.Stop()
		if err := w.awaitEnd(); err != nil {
			s.Fatalf("stopped watch ended with %v", err)
		}
		w.Stop()
		if err := w.Progress(s.ctx); err != nil && !errors.Is(err, context.Canceled) {
			s.Fatalf("progress of a stopped watch: %v", err)
		}
	}},
	{"StopEndsUnreadWatch", func(s *suite) {
		w := s.watch("/registry/pods/", s.revision())
		for i := range 200 {
			s.create(podKey(i), "v")
		}
		w.Stop()
		if err := w.awaitEnd(); err != nil {
			s.Fatalf("stopped watch ended with %v", err)
		}
	}},
	{"ContextEndsWatch", func(s *suite) {
		ctx, cancel := context.WithCancel(s.ctx)
		w, err := s.store.Watch(ctx, "/registry/pods/", 0)
		if err != nil {
			s.Fatal(err)
		}
		cancel()
		if err := (&checkedWatch{suite: s, Watcher: w}).awaitEnd(); err != nil {
			s.Fatalf("watch with an ended context ended with %v", err)
		}
	}},
	{"StopDoesNotAffectOtherWatches", func(s *suite) {
		start := s.revision()
		stopped := s.watch("/registry/pods/", start)
		retained := s.watch("/registry/pods/", start)
		stopped.Stop()
		s.create("/registry/pods/a", "v")
		retained.nextEvents(1)
	}},
}

// wantProgress requests progress once and waits for the revision. A watch may deliver other
// batches first, and the response to an earlier request.
func (s *suite) wantProgress(watch *checkedWatch, rev int64) {
	s.Helper()
	if err := watch.Progress(s.ctx); err != nil {
		s.Fatalf("progress: %v", err)
	}
	for watch.last < rev || !watch.idle {
		b := watch.nextBatch()
		watch.idle = len(b.Events) == 0
	}
	watch.idle = false
}

// progressAfterEvents checks that a batch with a revision comes after every event up to it, also
// during concurrent writes.
func progressAfterEvents(s *suite) {
	const n = 300
	start := s.revision()
	w := s.watch("/registry/pods/", start)
	var workers sync.WaitGroup
	workers.Go(func() {
		for i := range n {
			if _, err := s.store.Create(s.ctx, podKey(i), []byte("v"), storage.WriteOptions{}); err != nil {
				s.Errorf("create: %v", err)
				return
			}
		}
	})
	workers.Go(func() {
		for range n {
			if err := w.Progress(s.ctx); err != nil {
				s.Errorf("progress: %v", err)
				return
			}
		}
	})
	// nextEvents fails if an event is not after the revision of the batch before it.
	w.nextEvents(n)
	workers.Wait()
}

// eachEventOnce checks, with many writers and watchers from different revisions, that each watcher
// receives each revision of its prefix once and in order.
func eachEventOnce(s *suite) {
	const writers, writes = 4, 60
	start := s.revision()
	var watches []*checkedWatch
	for range 3 {
		watches = append(watches, s.watch("/registry/pods/", start))
	}
	var (
		mu   sync.Mutex
		revs = map[int64]string{}
		wg   sync.WaitGroup
	)
	for writer := range writers {
		wg.Go(func() {
			key := podKey(writer)
			var rev int64
			for i := range writes {
				var err error
				switch {
				case rev == 0:
					rev, err = s.store.Create(s.ctx, key, []byte(fmt.Sprint(i)), storage.WriteOptions{})
				case i%5 == 4:
					rev, err = s.store.Delete(s.ctx, key, rev)
				default:
					rev, err = s.store.Update(s.ctx, key, []byte(fmt.Sprint(i)), rev, storage.WriteOptions{})
				}
				if err != nil {
					s.Errorf("write: %v", err)
					return
				}
				mu.Lock()
				revs[rev] = key
				mu.Unlock()
				if i%5 == 4 {
					rev = 0
				}
			}
		})
	}
	wg.Wait()
	watches = append(watches, s.watch("/registry/pods/", start))
	for i, watch := range watches {
		received := map[int64]string{}
		for _, e := range watch.nextEvents(writers * writes) {
			received[e.Revision] = e.Key
		}
		if !reflect.DeepEqual(received, revs) {
			s.Fatalf("watch %d received %d revisions, want %d", i, len(received), len(revs))
		}
	}
}

var compactTests = []test{
	{"ReadsOfCompactedRevisionsAreRejected", func(s *suite) {
		first := s.create("/registry/pods/a", "v1")
		second := s.update("/registry/pods/a", "v2", first)
		if err := s.store.Compact(s.ctx, second); err != nil {
			s.Fatal(err)
		}
		_, _, err := s.store.Get(s.ctx, "/registry/pods/a", first)
		s.wantCompacted(err)
		_, err = s.store.List(s.ctx, "/registry/pods/", storage.ListOptions{Revision: first})
		s.wantCompacted(err)
	}},
	{"CompactedRevisionItselfIsReadable", func(s *suite) {
		first := s.create("/registry/pods/a", "v1")
		second := s.update("/registry/pods/a", "v2", first)
		s.update("/registry/pods/a", "v3", second)
		if err := s.store.Compact(s.ctx, second); err != nil {
			s.Fatal(err)
		}
		kv, _, err := s.store.Get(s.ctx, "/registry/pods/a", second)
		if err != nil || string(kv.Value) != "v2" {
			s.Fatalf("got %q, %v, want v2", kv.Value, err)
		}
	}},
	{"WatchBeforeCompactionFails", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		for i := range 5 {
			rev = s.update("/registry/pods/a", fmt.Sprint(i), rev)
		}
		if err := s.store.Compact(s.ctx, rev); err != nil {
			s.Fatal(err)
		}
		err := s.watch("/registry/pods/", rev-3).awaitEnd()
		s.wantCompacted(err)
		var removed *storage.CompactedError
		if errors.As(err, &removed) && removed.OldestRevision != rev {
			s.Fatalf("error reports oldest revision %d, want %d", removed.OldestRevision, rev)
		}
	}},
	{"WatchAtCompactionContinues", func(s *suite) {
		first := s.create("/registry/pods/a", "v1")
		second := s.update("/registry/pods/a", "v2", first)
		if err := s.store.Compact(s.ctx, second); err != nil {
			s.Fatal(err)
		}
		w := s.watch("/registry/pods/", second)
		third := s.update("/registry/pods/a", "v3", second)
		if got := w.nextEvents(1); got[0].Revision != third {
			s.Fatalf("got %+v, want revision %d", got, third)
		}
	}},
	{"RunningWatchContinues", func(s *suite) {
		w := s.watch("/registry/pods/", s.revision())
		rev := s.create("/registry/pods/a", "v1")
		w.nextEvents(1)
		for range 3 {
			rev = s.update("/registry/pods/a", "v", rev)
			w.nextEvents(1)
			if err := s.store.Compact(s.ctx, rev); err != nil {
				s.Fatal(err)
			}
		}
	}},
	{"CompactionTwiceFails", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		rev = s.update("/registry/pods/a", "v2", rev)
		if err := s.store.Compact(s.ctx, rev); err != nil {
			s.Fatal(err)
		}
		s.wantCompacted(s.store.Compact(s.ctx, rev))
		s.wantFuture(s.store.Compact(s.ctx, rev+100), rev)
	}},
}
