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
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cache/watchcache/watchcachetest"
	"binnacle/services/apiserver/internal/storage"
)

func names(s *watchcache.Store) []string {
	out := []string{}
	s.Snapshot().Ascend(s.Prefix(), "", func(e *watchcache.Entry) bool {
		out = append(out, strings.TrimPrefix(e.Key(), s.Prefix()))
		return true
	})
	return out
}

func TestLoadInPages(t *testing.T) {
	store := newMemStore()
	var ops []op
	for i := range 1234 {
		ops = append(ops, op{fmt.Sprintf("/registry/pods/ns-%d/p", i), []byte(onNode("n"))})
	}
	store.txn(ops...)
	r := newRig(t, store, nil)
	if n := r.pods.Snapshot().Len(); n != 1234 {
		t.Errorf("%d pods were loaded", n)
	}
	if rev := r.cache.Revision(); rev != 2 {
		t.Errorf("loaded at %d", rev)
	}
	if n := r.cache.Store("/registry/nodes/").Snapshot().Len(); n != 0 {
		t.Errorf("%d nodes were loaded", n)
	}
}

func TestNotReady(t *testing.T) {
	store := newMemStore()
	c, err := watchcache.New(watchcache.Config{
		Source: watchcachetest.NewSource(store, "/registry/"), Newest: store,
		Resources: []watchcache.Resource{resource("pods")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Store("pods").Watch(watchcache.WatchOptions{}); !errors.Is(err, watchcache.ErrNotReady) {
		t.Errorf("watch before the cache is loaded: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.WaitReady(ctx); !errors.Is(err, context.Canceled) || c.Ready() {
		t.Errorf("waiting for a cache that does not run: %v", err)
	}
	if err := c.Run(ctx); err != nil {
		t.Errorf("a run that is cancelled: %v", err)
	}
	if err := c.WaitFor(context.Background(), 99); !errors.Is(err, watchcache.ErrStopped) {
		t.Errorf("waiting for a cache that has ended: %v", err)
	}
	if err := c.Run(context.Background()); err == nil {
		t.Error("a second run was not refused")
	}
}

func TestConfigIsChecked(t *testing.T) {
	store := newMemStore()
	src := watchcachetest.NewSource(store, "/registry/")
	pod := resource("pods")
	inner := pod
	inner.Name, inner.Prefix = "inner", pod.Prefix+"inner/"
	foreign := pod
	foreign.Prefix = "/elsewhere/pods/"
	tests := []struct {
		name string
		cfg  watchcache.Config
	}{
		{"no source", watchcache.Config{Newest: store}},
		{"no newest revision", watchcache.Config{Source: src}},
		{"a resource twice", watchcache.Config{Source: src, Newest: store, Resources: []watchcache.Resource{pod, pod}}},
		{"a resource within another", watchcache.Config{Source: src, Newest: store, Resources: []watchcache.Resource{pod, inner}}},
		{"a resource outside of the root", watchcache.Config{Source: src, Newest: store, Resources: []watchcache.Resource{foreign}}},
		{"a resource without a name", watchcache.Config{Source: src, Newest: store, Resources: []watchcache.Resource{{Prefix: "/registry/x/", Attributes: pod.Attributes}}}},
	}
	for _, tc := range tests {
		if _, err := watchcache.New(tc.cfg); err == nil {
			t.Errorf("%s: no error", tc.name)
		}
	}
}

// A load that fails is tried again.
func TestLoadFails(t *testing.T) {
	store := newMemStore()
	store.put("/registry/pods/a/x", onNode(""))
	src := &failingLoad{Source: watchcachetest.NewSource(store, "/registry/"), left: 3}
	r := newRig(t, store, func(c *watchcache.Config) { c.Source = src })
	if got := names(r.pods); !slices.Equal(got, []string{"a/x"}) {
		t.Errorf("loaded %q", got)
	}
}

type failingLoad struct {
	watchcache.Source
	left int
}

func (s *failingLoad) Load(ctx context.Context, page func([]storage.KeyValue) error) (storage.Place, error) {
	rev, err := s.Source.Load(ctx, page)
	if s.left--; err == nil && s.left >= 0 {
		err = storage.ErrUnavailable
	}
	return rev, err
}

func put(key string, rev int64) storage.Event {
	return storage.Event{Type: storage.Created, Key: "/registry/pods/a/" + key, Revision: rev, CreateRevision: rev, Value: []byte("{}")}
}

// The cache takes nothing twice and nothing out of order.
func TestApplyChecksOrder(t *testing.T) {
	src := &idleSource{batches: make(chan storage.Batch), failed: make(chan error)}
	r := newRig(t, newMemStore(), func(c *watchcache.Config) { c.Source = src })
	apply := func(b storage.Batch) error {
		src.batches <- b
		return <-src.failed
	}
	w := r.watch(watchcache.WatchOptions{After: 1})
	steps := []struct {
		name  string
		batch storage.Batch
		bad   bool
		want  int64
	}{
		{"in order", storage.Batch{Events: []storage.Event{put("a", 2), put("b", 3)}, Revision: 3}, false, 3},
		{"overlapping", storage.Batch{Events: []storage.Event{put("b", 3), put("c", 4)}, Revision: 4}, false, 4},
		{"out of order", storage.Batch{Events: []storage.Event{put("e", 6), put("d", 5)}, Revision: 6}, true, 4},
		{"the same in order", storage.Batch{Events: []storage.Event{put("d", 5), put("e", 6)}, Revision: 6}, false, 6},
		{"progress", storage.Batch{Revision: 9}, false, 9},
		{"old progress", storage.Batch{Revision: 7}, false, 9},
		{"deletion of what is not there", storage.Batch{Events: []storage.Event{{Type: storage.Deleted, Key: "/registry/pods/a/none", Revision: 10}}, Revision: 10}, false, 10},
	}
	for _, s := range steps {
		if err := apply(s.batch); (err != nil) != s.bad {
			t.Errorf("%s: %v", s.name, err)
		}
		if got := r.cache.Revision(); got != s.want {
			t.Errorf("%s: revision %d, want %d", s.name, got, s.want)
		}
	}
	evs, err := drain(r.ctx, w, 10, 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(evs) != 5 || !slices.IsSortedFunc(evs, func(a, b watchcache.Event) int { return int(a.Revision - b.Revision) }) {
		t.Errorf("told %q", texts(evs))
	}
}

// A value that cannot be read is there, with what its key tells and why.
func TestUnreadableValue(t *testing.T) {
	store := newMemStore()
	store.put("/registry/pods/a/bad", "nonsense")
	r := newRig(t, store, nil)
	store.put("/registry/pods/b/worse", "nonsense")
	r.sync()
	if got := names(r.pods); !slices.Equal(got, []string{"a/bad", "b/worse"}) {
		t.Errorf("holds %q", got)
	}
	e, _ := r.pods.Get("/registry/pods/a/bad")
	if e.Namespace() != "a" || e.Name() != "bad" || string(e.Stored()) != "nonsense" {
		t.Errorf("entry %+v", e)
	}
	r.wantMetrics(`binnacle_watch_cache_unreadable_values_total{resource="pods"} 2`)
	for _, e := range []*watchcache.Entry{e, r.pods.Entry(storage.KeyValue{Key: "/registry/pods/a/bad", Value: []byte("nonsense")})} {
		var why *storage.UnreadableError
		if !errors.As(e.Unreadable(), &why) || !why.Undecodable || why.Key != e.Key() || why.Revision != e.Revision {
			t.Errorf("told %+v", why)
		}
	}
}

// Callers share a read of the newest revision that begins after they came.
func TestMostRecentIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		r := newRig(t, store, nil)
		leave := make(chan struct{})
		store.onRead = func() { <-leave }
		revs := make(chan int64, 21)
		ask := func() {
			rev, err := r.pods.MostRecent(r.ctx)
			if err != nil {
				t.Error(err)
			}
			revs <- rev
		}
		go ask()
		synctest.Wait() // its read has fixed the revision and is held up
		written := store.put("/registry/pods/a/x", onNode(""))
		for range 20 {
			go ask()
		}
		synctest.Wait()
		leave <- struct{}{}
		if rev := <-revs; rev >= written {
			t.Errorf("the first read saw %d", rev)
		}
		synctest.Wait()
		close(leave)
		for range 20 {
			if rev := <-revs; rev < written {
				t.Errorf("a caller that came after the write of %d got %d", written, rev)
			}
		}
		if e, ok := r.pods.Get("/registry/pods/a/x"); !ok || e.Revision != written {
			t.Error("the write is not to be seen")
		}
		if store.reads != 2 {
			t.Errorf("%d reads", store.reads)
		}
		r.wantMetrics(`apiserver_watch_cache_consistent_read_total{fallback="false",resource="pods",success="true"} 21`,
			`apiserver_watch_cache_read_wait_seconds{resource="pods"} 21`)
	})
}

func TestMostRecentFails(t *testing.T) {
	r := newRig(t, newMemStore(), func(c *watchcache.Config) { c.Newest = brokenNewest{} })
	if _, err := r.pods.MostRecent(r.ctx); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	r.wantMetrics(`apiserver_watch_cache_consistent_read_total{fallback="false",resource="pods",success="false"} 1`)
}

type brokenNewest struct{}

func (brokenNewest) Confirm(context.Context, storage.Place) (int64, error) {
	return 0, storage.ErrUnavailable
}

// Revisions that change nothing below the root are asked for.
func TestWaitForAsksForProgress(t *testing.T) {
	r := newRig(t, newMemStore(), nil)
	rev := r.store.bump()
	if err := r.cache.WaitFor(r.ctx, rev); err != nil {
		t.Fatal(err)
	}
	r.store.mu.Lock()
	asked := r.store.progress
	r.store.mu.Unlock()
	if asked == 0 || r.cache.Revision() != rev {
		t.Errorf("asked %d times, at %d", asked, r.cache.Revision())
	}
	ctx, cancel := context.WithTimeout(r.ctx, 20*time.Millisecond)
	defer cancel()
	if err := r.cache.WaitFor(ctx, rev+1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for the future: %v", err)
	}
}

func TestListMetrics(t *testing.T) {
	store := newMemStore()
	for i := range 10 {
		store.put(fmt.Sprintf("/registry/pods/a/%d", i), onNode(fmt.Sprintf("n%d", i%2)))
	}
	r := newRig(t, store, nil)
	for _, fields := range []string{"", "spec.nodeName=n1", "metadata.name!=0"} {
		r.pods.Snapshot().Select(selection(t, "", "", fields), "", func(*watchcache.Entry) bool { return true })
	}
	store.put("/registry/pods/a/0", onNode("n1"))
	r.sync()
	r.wantMetrics(
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

// Continued lists at one revision are served although the log has moved on.
func TestSnapshotAtIsKept(t *testing.T) {
	clk := &clock{now: time.Unix(1e9, 0)}
	r := newRig(t, newMemStore(), func(c *watchcache.Config) { c.LogEvents, c.Now = 64, clk.Now })
	r.store.put("/registry/pods/a/x", onNode("1"))
	r.store.put("/registry/pods/a/x", onNode("2"))
	r.sync()
	check := func() bool {
		sn, ok := r.pods.SnapshotAt(2, nil)
		if !ok {
			return false
		}
		if e, _ := sn.Get("/registry/pods/a/x"); string(e.Stored()) != onNode("1") || sn.Revision() != 2 {
			t.Errorf("at 2: %s", e.Stored())
		}
		return true
	}
	if !check() {
		t.Fatal("no snapshot within the log")
	}
	for range 100 {
		r.store.put("/registry/pods/a/x", onNode("3"))
	}
	r.sync()
	if !check() {
		t.Error("the snapshot was not kept")
	}
	for rev := r.store.now() - 20; rev < r.store.now(); rev++ { // more than are kept
		if _, ok := r.pods.SnapshotAt(rev, nil); !ok {
			t.Errorf("no snapshot at %d", rev)
		}
	}
	if check() {
		t.Error("snapshots are not bounded")
	}
	if _, ok := r.pods.SnapshotAt(r.store.now()+1, nil); ok {
		t.Error("a snapshot of the future")
	}
}

// However often an older state is read, it is not kept longer than history: the
// objects that it shows would never be released.
func TestSnapshotsAreNotKeptForEver(t *testing.T) {
	clk := &clock{now: time.Unix(1e9, 0)}
	budget := memory.New(memory.Default, nil)
	r := newRig(t, newMemStore(), func(c *watchcache.Config) { c.LogEvents, c.Now, c.Memory = 64, clk.Now, budget })
	r.store.put("/registry/pods/a/x", object{Data: strings.Repeat("x", 10_000)}.String())
	r.store.put("/registry/pods/a/x", onNode("2"))
	r.sync()
	if _, ok := r.pods.SnapshotAt(2, nil); !ok {
		t.Fatal("no snapshot within the log")
	}
	for range 100 {
		r.store.put("/registry/pods/a/x", onNode("3"))
	}
	r.sync()
	if n := r.metric("binnacle_watch_cache_images_bytes"); n < 10_000 {
		t.Errorf("a state that alone has an object of 10 kB takes %v bytes", n)
	}
	for at := time.Duration(0); at < 5*time.Minute; at += time.Minute {
		if _, ok := r.pods.SnapshotAt(2, nil); !ok {
			t.Errorf("no snapshot after %s of reading", at)
		}
		clk.advance(time.Minute)
	}
	clk.advance(time.Second)
	if _, ok := r.pods.SnapshotAt(2, nil); ok {
		t.Error("reading it keeps it for ever")
	}
}

// Older states are given up for what is needed more.
func TestSnapshotsAreWithinTheBudget(t *testing.T) {
	store := newMemStore()
	for i := range 100 {
		store.put(fmt.Sprintf("/registry/pods/a/%03d", i), onNode(""))
	}
	r := newRig(t, store, func(c *watchcache.Config) { c.Memory = memory.New(20_000, nil); c.HistoryBytes = 1 << 20 })
	for i := range 6 {
		store.put("/registry/pods/a/000", onNode(fmt.Sprint(i)))
	}
	for rev := r.sync() - 5; rev < store.now(); rev++ { // each takes some 5 kB
		if _, ok := r.pods.SnapshotAt(rev, nil); !ok {
			t.Errorf("no snapshot at %d", rev)
		}
	}
	if n := r.metric("binnacle_watch_cache_images_bytes"); n > 20_000*2/3 || n == 0 {
		t.Errorf("older states take %v bytes", n)
	}
}

// TestUnreadableValuesAreKnown: those that cannot be read are told of as they come, become others
// and go, from a key on, in old states too.
func TestUnreadableValuesAreKnown(t *testing.T) {
	store := newMemStore()
	r := newRig(t, store, nil)
	random := rand.New(rand.NewPCG(1, 2))
	var snaps []watchcache.Snapshot
	for range 300 {
		key := fmt.Sprintf("/registry/pods/%c/%02d", 'a'+random.IntN(3), random.IntN(20))
		switch random.IntN(3) {
		case 0:
			store.put(key, "nonsense")
		case 1:
			store.put(key, onNode("n"))
		default:
			if _, ok := r.pods.Get(key); ok {
				store.del(key)
			}
		}
		r.sync()
		snaps = append(snaps, r.pods.Snapshot())
	}
	for i, snap := range snaps {
		for _, namespace := range []string{"", "a", "b", "c"} {
			for _, from := range []string{"", "/registry/pods/b/10", "/registry/pods/c/"} {
				var got, want []string
				snap.Ascend("/registry/pods/", from, func(e *watchcache.Entry) bool {
					if e.Unreadable() != nil && (namespace == "" || e.Namespace() == namespace) {
						want = append(want, e.Key())
					}
					return true
				})
				snap.Unreadable(watchcache.Selection{Namespace: namespace}, from, func(e *watchcache.Entry) bool {
					got = append(got, e.Key())
					return true
				})
				if !slices.Equal(got, want) {
					t.Fatalf("state %d, namespace %q from %q: %q, want %q", i, namespace, from, got, want)
				}
			}
		}
	}
}
