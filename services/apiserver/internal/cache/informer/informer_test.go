package informer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/storage"
)

// source is a store in memory. Its stream can break, with or without a new history.
type source struct {
	mu       sync.Mutex
	revision int64
	objects  map[string]int64 // revisions by key
	events   []storage.Event
	broken   error // ends the stream
	wake     chan struct{}
}

// put writes an object.
func (s *source) put(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.objects[key] = s.revision
	return s.add(storage.Event{
		Key:            "/r/" + key,
		Revision:       s.revision,
		CreateRevision: s.revision,
		Type:           storage.Created,
		Value:          []byte(key),
	})
}

// remove deletes an object.
func (s *source) remove(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	delete(s.objects, key)
	return s.add(storage.Event{Key: "/r/" + key, Revision: s.revision, Type: storage.Deleted})
}

// add appends an event and wakes the stream. The caller holds mu.
func (s *source) add(ev storage.Event) int64 {
	s.events = append(s.events, ev)
	s.signal()
	return s.revision
}

// signal wakes the stream. The caller holds mu.
func (s *source) signal() {
	close(s.wake)
	s.wake = make(chan struct{})
}

// endStream ends the stream with an error and changes objects without events.
func (s *source) endStream(err error, revision int64, keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = revision
	s.events = nil
	s.broken = err
	s.objects = map[string]int64{}
	for _, k := range keys {
		s.objects[k] = revision
	}
	s.signal()
}

// VerifyHistory implements watchcache.RevisionReader.
func (s *source) VerifyHistory(context.Context, storage.Position) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, nil
}

// Progress implements watchcache.Source.
func (s *source) Progress(context.Context) error { return nil }

// Load implements watchcache.Source.
func (s *source) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = nil
	var values []storage.KeyValue
	for _, k := range slices.Sorted(maps.Keys(s.objects)) {
		values = append(values, storage.KeyValue{Key: "/r/" + k, Value: []byte(k), ModRevision: s.objects[k], CreateRevision: s.objects[k]})
	}
	return storage.Position{Revision: s.revision}, page(values)
}

// Follow implements watchcache.Source.
func (s *source) Follow(ctx context.Context, from storage.Position, apply func(storage.Batch) error) error {
	for after := from.Revision; ; {
		s.mu.Lock()
		batch, err, wake := storage.Batch{Revision: s.revision}, s.broken, s.wake
		for _, ev := range s.events {
			if ev.Revision > after {
				batch.Events = append(batch.Events, ev)
			}
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if batch.Revision > after {
			if err := apply(batch); err != nil {
				return err
			}
			after = batch.Revision
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fixture is a running informer of the objects below /r/a/. It records the calls.
type fixture struct {
	*informer.Informer
	t      *testing.T
	source *source
	calls  chan string
	// recordsEmpty makes calls of Apply without changes be recorded.
	recordsEmpty atomic.Bool
	cache        *watchcache.Cache
	ended        <-chan error // result of Run
	// stop ends Run, stopCache the watch cache.
	stop, stopCache func()
}

// newFixture starts an informer over a source that has the given keys.
func newFixture(t *testing.T, keys ...string) *fixture {
	t.Helper()
	return startInformer(t, informer.Config{}, keys)
}

// newChangesFixture is like newFixture, but the informer receives changes only.
func newChangesFixture(t *testing.T, keys ...string) *fixture {
	t.Helper()
	return startInformer(t, informer.Config{ChangesOnly: true}, keys)
}

// startInformer starts a watch cache over a source with the given keys, and an informer whose
// callbacks record their calls. Both run until the test ends.
func startInformer(t *testing.T, config informer.Config, keys []string) *fixture {
	t.Helper()
	started := &fixture{t: t, source: &source{objects: map[string]int64{}, wake: make(chan struct{})}, calls: make(chan string, 100)}
	started.source.endStream(nil, 10, keys...)
	var resources []watchcache.ResourceConfig
	for _, prefix := range []string{"/r/a/", "/r/b/"} {
		resources = append(resources, watchcache.ResourceConfig{
			Name:   strings.Trim(prefix[3:], "/"),
			Prefix: prefix,
			Attributes: func(key string, _ []byte) (attributes.Attributes, error) {
				return attributes.Attributes{Name: strings.TrimPrefix(key, prefix)}, nil
			},
		})
	}
	var err error
	started.cache, err = watchcache.New(watchcache.Config{
		Root:            "/r/",
		Source:          started.source,
		CurrentRevision: started.source,
		Resources:       resources,
		Logger:          slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	config.Store = started.cache.Store("a")
	config.Replace = func(_ context.Context, entries []*objects.Entry, _ int64) {
		names := make([]string, len(entries))
		for i, e := range entries {
			names[i] = e.Name()
		}
		started.calls <- fmt.Sprint("replace ", names)
	}
	config.Apply = func(_ context.Context, changes []watchcache.Event, _ int64) {
		if len(changes) == 0 && started.recordsEmpty.Load() {
			started.calls <- "no changes"
		}
		for _, ev := range changes {
			started.calls <- ev.Type.String() + " " + ev.Entry.Name()
		}
	}
	config.OnLost = func(err error) {
		started.calls <- fmt.Sprintf("lost expired=%t", errors.As(err, new(*watchcache.ExpiredError)))
	}
	started.Informer = informer.New(config)
	ctx, cancel := context.WithCancel(t.Context())
	feed, stopFeed := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = started.cache.Run(feed) })
	ended := make(chan error, 1)
	wg.Go(func() { ended <- started.Run(ctx) })
	started.stop = cancel
	started.stopCache = stopFeed
	started.ended = ended
	t.Cleanup(func() { cancel(); stopFeed(); wg.Wait() })
	return started
}

// expect checks the next calls.
func (f *fixture) expect(want ...string) {
	f.t.Helper()
	for _, w := range want {
		if got := <-f.calls; got != w {
			f.t.Fatalf("got %s, want %s", got, w)
		}
	}
}

// waitFor waits until the informer has applied a revision.
func (f *fixture) waitFor(revision int64) {
	f.t.Helper()
	if err := f.WaitFor(f.t.Context(), revision); err != nil {
		f.t.Fatal(err)
	}
}

// TestInformerReceivesObjectsAndThenChanges checks that an informer receives the selected objects,
// then the changes, and reports when it ends.
func TestInformerReceivesObjectsAndThenChanges(t *testing.T) {
	f := newFixture(t, "a/1", "a/2", "b/1")
	f.expect("replace [1 2]")
	f.source.put("a/3")
	f.source.put("a/1")
	f.source.remove("a/2")
	f.expect("ADDED 3", "MODIFIED 1", "DELETED 2")
	f.stop()
	f.expect("lost expired=false")
	if err := <-f.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want %v", err, context.Canceled)
	}
}

// TestInformerReceivesManyObjectsInOneCall checks that the initial objects are not divided over
// several calls.
func TestInformerReceivesManyObjectsInOneCall(t *testing.T) {
	var keys, names []string
	for i := range 200 {
		keys = append(keys, fmt.Sprintf("a/%03d", i))
		names = append(names, fmt.Sprintf("%03d", i))
	}
	newFixture(t, keys...).expect(fmt.Sprint("replace ", names))
}

// TestInformerOfChangesReceivesNoObjects checks that ChangesOnly omits the initial objects.
func TestInformerOfChangesReceivesNoObjects(t *testing.T) {
	f := newChangesFixture(t, "a/1")
	f.expect("replace []")
	f.source.put("a/1")
	f.expect("MODIFIED 1")
}

// TestInformerResynchronizesAfterMissedChanges checks that after a compaction or a restored backup,
// changes were missed.
func TestInformerResynchronizesAfterMissedChanges(t *testing.T) {
	for name, broken := range map[string]error{
		"compacted": &storage.CompactedError{OldestRevision: 100}, "replaced": &storage.ReplacedError{Reason: "a test"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "a/1", "a/2")
			f.expect("replace [1 2]")
			f.source.endStream(broken, 200, "a/2", "a/3")
			f.expect("lost expired=true", "replace [2 3]")
			f.waitFor(200)
			if !f.Synced() {
				t.Error("after the new state: got not synced, want synced")
			}
			f.source.put("a/4")
			f.expect("ADDED 4")
		})
	}
}

// TestWaitForIncludesRevision checks that WaitFor returns at the revision of another resource, and only
// after the change at a revision was applied.
func TestWaitForIncludesRevision(t *testing.T) {
	fixture := newFixture(t, "a/1")
	fixture.waitFor(10)
	if !fixture.Synced() || !fixture.Loaded() {
		t.Error("after the state: got neither synced nor loaded, want both")
	}
	fixture.expect("replace [1]")
	fixture.waitFor(fixture.source.put("b/1"))
	fixture.waitFor(fixture.source.put("a/2"))
	select {
	case got := <-fixture.calls:
		if got != "ADDED 2" {
			t.Errorf("got %s, want ADDED 2", got)
		}
	default:
		t.Error("WaitFor before the change was applied: got it returned, want it blocked")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fixture.WaitFor(ctx, 1000); !errors.Is(err, context.Canceled) {
		t.Errorf("wait for a future revision: got %v", err)
	}
}

// TestRunReturnsNilWhenWatchCacheStops checks that Run ends without an error when its cache stops.
func TestRunReturnsNilWhenWatchCacheStops(t *testing.T) {
	f := newFixture(t)
	f.expect("replace []")
	f.stopCache()
	f.expect("lost expired=false")
	if err := <-f.ended; err != nil {
		t.Errorf("Run = %v, want %v", err, context.Canceled)
	}
}

// TestTriggerAppliesWithoutChanges checks that Trigger calls Apply even if there are no changes.
func TestTriggerAppliesWithoutChanges(t *testing.T) {
	f := newFixture(t)
	f.expect("replace []")
	f.recordsEmpty.Store(true)
	f.Trigger()
	f.expect("no changes")
	f.TriggerAfter(0)
	f.expect("no changes")
}
