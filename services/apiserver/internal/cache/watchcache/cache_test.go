package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/cache/memory"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cache/watchcache/watchcachetest"
	"binnacle/services/apiserver/internal/storage"
)

// keysOf returns the keys of a store without its prefix.
func keysOf(s *watchcache.Store) []string {
	out := []string{}
	s.Snapshot().Ascend(s.Prefix(), "", func(e *objects.Entry) bool {
		out = append(out, strings.TrimPrefix(e.Key(), s.Prefix()))
		return true
	})
	return out
}

// TestCacheLoadsPages checks that all pages of a load reach their stores.
func TestCacheLoadsPages(t *testing.T) {
	store := newMemStore()
	var ops []keyChange
	for i := range 1234 {
		ops = append(ops, keyChange{fmt.Sprintf("/registry/pods/ns-%d/p", i), []byte(podOnNode("n"))})
	}
	store.applyChanges(ops...)
	rig := newRig(t, store, nil)
	if n := rig.pods.Snapshot().Len(); n != 1234 {
		t.Errorf("loaded %d pods, want 1234", n)
	}
	if rev := rig.cache.Revision(); rev != 2 {
		t.Errorf("loaded at revision %d, want 2", rev)
	}
	if n := rig.cache.Store("/registry/nodes/").Snapshot().Len(); n != 0 {
		t.Errorf("loaded %d nodes, want 0", n)
	}
}

// TestCacheNotReadyBeforeLoad checks the errors of a cache before it is loaded and after it has
// stopped.
func TestCacheNotReadyBeforeLoad(t *testing.T) {
	store := newMemStore()
	cache, err := watchcache.New(watchcache.Config{
		Source:          watchcachetest.NewSource(store, "/registry/"),
		CurrentRevision: store,
		Resources:       []watchcache.ResourceConfig{resourceConfig("pods")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Store("pods").Watch(watchcache.WatchOptions{}); !errors.Is(err, watchcache.ErrNotReady) {
		t.Errorf("Watch before the load: got %v, want ErrNotReady", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := cache.WaitReady(ctx); !errors.Is(err, context.Canceled) || cache.Ready() {
		t.Errorf("WaitReady before Run: got %v, want context.Canceled", err)
	}
	if err := cache.Run(ctx); err != nil {
		t.Errorf("Run with a cancelled context: %v", err)
	}
	if err := cache.WaitFor(context.Background(), 99); !errors.Is(err, watchcache.ErrStopped) {
		t.Errorf("WaitFor after Run returned: got %v, want ErrStopped", err)
	}
	if err := cache.Run(context.Background()); err == nil {
		t.Error("second Run = nil, want an error")
	}
}

// TestNewRejectsInvalidConfig checks that New requires a source, and resources with distinct
// prefixes below the root.
func TestNewRejectsInvalidConfig(t *testing.T) {
	store := newMemStore()
	src := watchcachetest.NewSource(store, "/registry/")
	pod := resourceConfig("pods")
	inner := pod
	inner.Name = "inner"
	inner.Prefix = pod.Prefix + "inner/"
	foreign := pod
	foreign.Prefix = "/elsewhere/pods/"
	tests := []struct {
		name string
		cfg  watchcache.Config
	}{
		{name: "no source", cfg: watchcache.Config{CurrentRevision: store}},
		{name: "no newest revision", cfg: watchcache.Config{Source: src}},
		{
			name: "a resource twice",
			cfg:  watchcache.Config{Source: src, CurrentRevision: store, Resources: []watchcache.ResourceConfig{pod, pod}},
		},
		{
			name: "a resource within another",
			cfg:  watchcache.Config{Source: src, CurrentRevision: store, Resources: []watchcache.ResourceConfig{pod, inner}},
		},
		{
			name: "a resource outside of the root",
			cfg:  watchcache.Config{Source: src, CurrentRevision: store, Resources: []watchcache.ResourceConfig{foreign}},
		},
		{
			name: "a resource without a name",
			cfg: watchcache.Config{
				Source:          src,
				CurrentRevision: store,
				Resources:       []watchcache.ResourceConfig{{Prefix: "/registry/x/", Attributes: pod.Attributes}},
			},
		},
	}
	for _, tc := range tests {
		if _, err := watchcache.New(tc.cfg); err == nil {
			t.Errorf("New with %s = nil, want an error", tc.name)
		}
	}
}

// TestLoadIsRetried checks that a failed load is retried.
func TestLoadIsRetried(t *testing.T) {
	store := newMemStore()
	store.putKey("/registry/pods/a/x", podOnNode(""))
	src := &failingLoads{Source: watchcachetest.NewSource(store, "/registry/"), left: 3}
	rig := newRig(t, store, func(c *watchcache.Config) { c.Source = src })
	if got := keysOf(rig.pods); !slices.Equal(got, []string{"a/x"}) {
		t.Errorf("pods after three failed loads = %q, want a/x", got)
	}
}

// failingLoads is a source whose first loads fail.
type failingLoads struct {
	watchcache.Source
	left int
}

// Load implements watchcache.Source.
func (s *failingLoads) Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	rev, err := s.Source.Load(ctx, page)
	s.left--
	if err == nil && s.left >= 0 {
		err = storage.ErrUnavailable
	}
	return rev, err
}

// createdPod returns an event that creates a pod.
func createdPod(key string, rev int64) storage.Event {
	return storage.Event{
		Type:           storage.Created,
		Key:            "/registry/pods/a/" + key,
		Revision:       rev,
		CreateRevision: rev,
		Value:          []byte("{}"),
	}
}

// TestApplyRejectsBatchOutOfOrder checks that the cache applies no event twice and none out of
// order.
func TestApplyRejectsBatchOutOfOrder(t *testing.T) {
	src := &idleSource{batches: make(chan storage.Batch), failed: make(chan error)}
	rig := newRig(t, newMemStore(), func(c *watchcache.Config) { c.Source = src })
	apply := func(b storage.Batch) error {
		src.batches <- b
		return <-src.failed
	}
	watcher := rig.watch(watchcache.WatchOptions{AfterRevision: 1})
	steps := []struct {
		name  string
		batch storage.Batch
		bad   bool
		want  int64
	}{
		{name: "in order", batch: storage.Batch{Events: []storage.Event{createdPod("a", 2), createdPod("b", 3)}, Revision: 3}, want: 3},
		{
			name:  "overlapping",
			batch: storage.Batch{Events: []storage.Event{createdPod("b", 3), createdPod("c", 4)}, Revision: 4},
			want:  4,
		},
		{
			name:  "out of order",
			batch: storage.Batch{Events: []storage.Event{createdPod("e", 6), createdPod("d", 5)}, Revision: 6},
			bad:   true,
			want:  4,
		},
		{
			name:  "the same in order",
			batch: storage.Batch{Events: []storage.Event{createdPod("d", 5), createdPod("e", 6)}, Revision: 6},
			want:  6,
		},
		{name: "progress", batch: storage.Batch{Revision: 9}, want: 9},
		{name: "old progress", batch: storage.Batch{Revision: 7}, want: 9},
		{
			name: "deletion of an unknown key",
			batch: storage.Batch{
				Events:   []storage.Event{{Type: storage.Deleted, Key: "/registry/pods/a/none", Revision: 10}},
				Revision: 10,
			},
			want: 10,
		},
	}
	for _, s := range steps {
		if err := apply(s.batch); (err != nil) != s.bad {
			t.Errorf("%s: got error %v, want error %t", s.name, err, s.bad)
		}
		if got := rig.cache.Revision(); got != s.want {
			t.Errorf("%s: revision %d, want %d", s.name, got, s.want)
		}
	}
	evs, err := drain(rig.ctx, watcher, 10, 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(evs) != 5 || !slices.IsSortedFunc(evs, func(a, b watchcache.Event) int { return int(a.Revision - b.Revision) }) {
		t.Errorf("got %q, want 5 events in order", formatEvents(evs))
	}
}

// TestCorruptValueIsServedWithError checks that a value that cannot be decoded is served with
// the attributes of its key and an error.
func TestCorruptValueIsServedWithError(t *testing.T) {
	store := newMemStore()
	store.putKey("/registry/pods/a/bad", "nonsense")
	rig := newRig(t, store, nil)
	store.putKey("/registry/pods/b/worse", "nonsense")
	rig.awaitWrites()
	if got := keysOf(rig.pods); !slices.Equal(got, []string{"a/bad", "b/worse"}) {
		t.Errorf("pods = %q, want a/bad and b/worse", got)
	}
	e, _ := rig.pods.Get("/registry/pods/a/bad")
	if e.Namespace() != "a" || e.Name() != "bad" || string(e.Stored()) != "nonsense" {
		t.Errorf("entry of a/bad = %+v, want namespace a, name bad and the stored value", e)
	}
	rig.wantMetrics(`binnacle_watch_cache_unreadable_values_total{resource="pods"} 2`)
	for _, e := range []*objects.Entry{e, rig.pods.Entry(storage.KeyValue{Key: "/registry/pods/a/bad", Value: []byte("nonsense")})} {
		var why *storage.CorruptObjectError
		if !errors.As(e.Corrupt(), &why) || !why.Undecodable || why.Key != e.Key() || why.Revision != e.Revision {
			t.Errorf("Corrupt() of %s at %d = %+v, want an undecodable value of that key and revision", e.Key(), e.Revision, why)
		}
	}
}

// TestMostRecentSharesReads checks that concurrent callers share one read of the newest revision.
// The read starts after their calls.
func TestMostRecentSharesReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		rig := newRig(t, store, nil)
		proceed := make(chan struct{})
		store.onRead = func() { <-proceed }
		revs := make(chan int64, 21)
		readNewest := func() {
			rev, err := rig.pods.MostRecent(rig.ctx)
			if err != nil {
				t.Error(err)
			}
			revs <- rev
		}
		go readNewest()
		synctest.Wait() // its read has fixed the revision and is blocked
		written := store.putKey("/registry/pods/a/x", podOnNode(""))
		for range 20 {
			go readNewest()
		}
		synctest.Wait()
		proceed <- struct{}{}
		if rev := <-revs; rev >= written {
			t.Errorf("first read returned %d, want less than %d", rev, written)
		}
		synctest.Wait()
		close(proceed)
		for range 20 {
			if rev := <-revs; rev < written {
				t.Errorf("call after a write: got revision %d, want at least %d", rev, written)
			}
		}
		if e, ok := rig.pods.Get("/registry/pods/a/x"); !ok || e.Revision != written {
			t.Errorf("got entry %v (found: %t), want that of the write at %d", e, ok, written)
		}
		if store.reads != 2 {
			t.Errorf("got %d reads of the store, want 2", store.reads)
		}
		rig.wantMetrics(`apiserver_watch_cache_consistent_read_total{fallback="false",resource="pods",success="true"} 21`,
			`apiserver_watch_cache_read_wait_seconds{resource="pods"} 21`)
	})
}

// TestMostRecentReturnsStoreError checks that MostRecent fails while the store is unavailable.
func TestMostRecentReturnsStoreError(t *testing.T) {
	rig := newRig(t, newMemStore(), func(c *watchcache.Config) { c.CurrentRevision = unavailableRevision{} })
	if _, err := rig.pods.MostRecent(rig.ctx); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	rig.wantMetrics(`apiserver_watch_cache_consistent_read_total{fallback="false",resource="pods",success="false"} 1`)
}

// unavailableRevision reads the revision of a store that is unavailable.
type unavailableRevision struct{}

// VerifyHistory implements watchcache.RevisionReader.
func (unavailableRevision) VerifyHistory(context.Context, storage.Position) (int64, error) {
	return 0, storage.ErrUnavailable
}

// TestWaitForRequestsProgress checks that the cache requests progress for revisions that change
// nothing below its root.
func TestWaitForRequestsProgress(t *testing.T) {
	rig := newRig(t, newMemStore(), nil)
	rev := rig.store.advanceRevision()
	if err := rig.cache.WaitFor(rig.ctx, rev); err != nil {
		t.Fatal(err)
	}
	rig.store.mu.Lock()
	requested := rig.store.progress
	rig.store.mu.Unlock()
	if requested == 0 || rig.cache.Revision() != rev {
		t.Errorf("requested progress %d times, cache at %d, want at %d", requested, rig.cache.Revision(), rev)
	}
	ctx, cancel := context.WithTimeout(rig.ctx, 20*time.Millisecond)
	defer cancel()
	if err := rig.cache.WaitFor(ctx, rev+1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("WaitFor of a future revision: got %v, want context.DeadlineExceeded", err)
	}
}

// TestListsAreCounted checks the metrics of lists and changes.
func TestListsAreCounted(t *testing.T) {
	store := newMemStore()
	for i := range 10 {
		store.putKey(fmt.Sprintf("/registry/pods/a/%d", i), podOnNode(fmt.Sprintf("n%d", i%2)))
	}
	rig := newRig(t, store, nil)
	for _, fields := range []string{"", "spec.nodeName=n1", "metadata.name!=0"} {
		rig.pods.Snapshot().Select(selection(t, "", "", fields), "", func(*objects.Entry) bool { return true })
	}
	store.putKey("/registry/pods/a/0", podOnNode("n1"))
	rig.awaitWrites()
	rig.wantMetrics(
		`apiserver_cache_list_total{index="",resource_prefix="/pods"} 2`,
		`apiserver_cache_list_total{index="f:spec.nodeName",resource_prefix="/pods"} 1`,
		`apiserver_cache_list_fetched_objects_total{index="",resource_prefix="/pods"} 20`,
		`apiserver_cache_list_fetched_objects_total{index="f:spec.nodeName",resource_prefix="/pods"} 5`,
		`apiserver_cache_list_returned_objects_total{resource_prefix="/pods"} 24`,
		`apiserver_watch_cache_events_received_total{resource="pods"} 1`,
		`apiserver_watch_cache_events_dispatched_total{resource="pods"} 1`,
		`watch_cache_capacity{resource="pods"} 64`,
		`watch_cache_capacity_increase_total{resource="pods"} 1`,
		`watch_cache_capacity_decrease_total{resource="pods"} 0`,
	)
}

// TestSnapshotAtRetainsSnapshots checks that continued lists at one revision are served even after
// the log has dropped that revision.
func TestSnapshotAtRetainsSnapshots(t *testing.T) {
	clk := &clock{now: time.Unix(1e9, 0)}
	rig := newRig(t, newMemStore(), func(c *watchcache.Config) { c.LogEvents, c.Now = 64, clk.Now })
	rig.store.putKey("/registry/pods/a/x", podOnNode("1"))
	rig.store.putKey("/registry/pods/a/x", podOnNode("2"))
	rig.awaitWrites()
	check := func() bool {
		sn, ok := rig.pods.SnapshotAt(2, nil)
		if !ok {
			return false
		}
		if e, _ := sn.Get("/registry/pods/a/x"); string(e.Stored()) != podOnNode("1") || sn.Revision() != 2 {
			t.Errorf("SnapshotAt(2) = revision %d with %s, want revision 2 with %s", sn.Revision(), e.Stored(), podOnNode("1"))
		}
		return true
	}
	if !check() {
		t.Fatal("revision within the log: got no snapshot, want one")
	}
	for range 100 {
		rig.store.putKey("/registry/pods/a/x", podOnNode("3"))
	}
	rig.awaitWrites()
	if !check() {
		t.Error("second SnapshotAt: got another snapshot, want the retained one")
	}
	for rev := rig.store.newestRevision() - 20; rev < rig.store.newestRevision(); rev++ { // more than are retained
		if _, ok := rig.pods.SnapshotAt(rev, nil); !ok {
			t.Errorf("at %d: got no snapshot, want one", rev)
		}
	}
	if check() {
		t.Error("oldest retained snapshot: got it retained, want a bounded number")
	}
	if _, ok := rig.pods.SnapshotAt(rig.store.newestRevision()+1, nil); ok {
		t.Error("future revision: got a snapshot, want none")
	}
}

// TestRetainedSnapshotExpiresWithHistory checks that a retained snapshot expires with history,
// however often it is read. Otherwise its objects would never be released.
func TestRetainedSnapshotExpiresWithHistory(t *testing.T) {
	clk := &clock{now: time.Unix(1e9, 0)}
	budget := memory.New(memory.Default, nil)
	rig := newRig(t, newMemStore(), func(c *watchcache.Config) { c.LogEvents, c.Now, c.Memory = 64, clk.Now, budget })
	rig.store.putKey("/registry/pods/a/x", object{Data: strings.Repeat("x", 10_000)}.String())
	rig.store.putKey("/registry/pods/a/x", podOnNode("2"))
	rig.awaitWrites()
	if _, ok := rig.pods.SnapshotAt(2, nil); !ok {
		t.Fatal("revision within the log: got no snapshot, want one")
	}
	for range 100 {
		rig.store.putKey("/registry/pods/a/x", podOnNode("3"))
	}
	rig.awaitWrites()
	if n := rig.metric("binnacle_watch_cache_images_bytes"); n < 10_000 {
		t.Errorf("a snapshot with its own object of 10 kB takes %v bytes, want at least 10000", n)
	}
	for at := time.Duration(0); at < 5*time.Minute; at += time.Minute {
		if _, ok := rig.pods.SnapshotAt(2, nil); !ok {
			t.Errorf("after %s of reading: got no snapshot, want one", at)
		}
		clk.advance(time.Minute)
	}
	clk.advance(time.Second)
	if _, ok := rig.pods.SnapshotAt(2, nil); ok {
		t.Error("after the history limit: got a retained snapshot, want none")
	}
}

// TestRetainedSnapshotsStayWithinBudget checks that retained snapshots are dropped when the memory
// budget is exceeded.
func TestRetainedSnapshotsStayWithinBudget(t *testing.T) {
	store := newMemStore()
	for i := range 100 {
		store.putKey(fmt.Sprintf("/registry/pods/a/%03d", i), podOnNode(""))
	}
	rig := newRig(t, store, func(c *watchcache.Config) { c.Memory = memory.New(20_000, nil); c.HistoryBytes = 1 << 20 })
	for i := range 6 {
		store.putKey("/registry/pods/a/000", podOnNode(fmt.Sprint(i)))
	}
	for rev := rig.awaitWrites() - 5; rev < store.newestRevision(); rev++ { // each takes some 5 kB
		if _, ok := rig.pods.SnapshotAt(rev, nil); !ok {
			t.Errorf("at %d: got no snapshot, want one", rev)
		}
	}
	if n := rig.metric("binnacle_watch_cache_images_bytes"); n > 20_000*2/3 || n == 0 {
		t.Errorf("retained snapshots take %v bytes, want 1 to 13333", n)
	}
}

// TestSnapshotListsCorruptValues checks that snapshots, also older ones, list the corrupt
// values from a key on while values become readable, corrupt and deleted.
func TestSnapshotListsCorruptValues(t *testing.T) {
	store := newMemStore()
	rig := newRig(t, store, nil)
	random := rand.New(rand.NewPCG(1, 2))
	var snaps []watchcache.Snapshot
	for range 300 {
		key := fmt.Sprintf("/registry/pods/%c/%02d", 'a'+random.IntN(3), random.IntN(20))
		switch random.IntN(3) {
		case 0:
			store.putKey(key, "nonsense")
		case 1:
			store.putKey(key, podOnNode("n"))
		default:
			if _, ok := rig.pods.Get(key); ok {
				store.deleteKey(key)
			}
		}
		rig.awaitWrites()
		snaps = append(snaps, rig.pods.Snapshot())
	}
	for i, snap := range snaps {
		for _, namespace := range []string{"", "a", "b", "c"} {
			for _, from := range []string{"", "/registry/pods/b/10", "/registry/pods/c/"} {
				var got, want []string
				snap.Ascend("/registry/pods/", from, func(e *objects.Entry) bool {
					if e.Corrupt() != nil && (namespace == "" || e.Namespace() == namespace) {
						want = append(want, e.Key())
					}
					return true
				})
				snap.SelectCorrupt(objects.Selection{Namespace: namespace}, from, func(e *objects.Entry) bool {
					got = append(got, e.Key())
					return true
				})
				if !slices.Equal(got, want) {
					t.Fatalf("state %d, namespace %q from %q: got %q, want %q", i, namespace, from, got, want)
				}
			}
		}
	}
}
