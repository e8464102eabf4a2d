package watchcache_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/cache/memory"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cache/watchcache/watchcachetest"
	"binnacle/services/apiserver/internal/storage"
)

// TestConcurrentCallersShareEncoding checks that concurrent callers of Encoding share one call of
// encode.
func TestConcurrentCallersShareEncoding(t *testing.T) {
	store := newMemStore()
	store.putKey("/registry/pods/a/x", podOnNode(""))
	rig := newRig(t, store, nil)
	entry, _ := rig.pods.Get("/registry/pods/a/x")
	var encoded atomic.Int32
	inside := make(chan struct{})
	proceed := make(chan struct{})
	encode := func(entry *objects.Entry) ([]byte, error) {
		if encoded.Add(1) == 1 {
			close(inside)
		}
		<-proceed
		return fmt.Appendf(nil, "<%s>", entry.Stored()), nil
	}
	var wg sync.WaitGroup
	got := make([][]byte, 16)
	for i := range got {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var err error
			if got[i], err = entry.Encoding(1, encode); err != nil {
				t.Error(err)
			}
		}()
	}
	<-inside
	if b, ok := entry.Encoded(1); ok {
		t.Errorf("unfinished encoding: got %q, want none", b)
	}
	close(proceed)
	wg.Wait()
	for _, b := range got {
		if &b[0] != &got[0][0] {
			t.Error("got different bytes for two callers, want one shared slice")
		}
	}
	if n := encoded.Load(); n != 1 {
		t.Errorf("got %d calls of encode, want 1", n)
	}
	other, err := entry.Encoding(2, func(entry *objects.Entry) ([]byte, error) {
		inner, err := entry.Encoding(1, nil)
		return append([]byte("frame "), inner...), err
	})
	if err != nil || string(other) != "frame <"+podOnNode("")+">" {
		t.Errorf("another form: got %q, %v, want the frame of the pod", other, err)
	}
	if b, ok := entry.Encoded(1); !ok || !bytes.Equal(b, got[0]) {
		t.Errorf("kept encoding: got %q, want %q", b, got[0])
	}
	rig.wantMetrics(`binnacle_watch_cache_encodings 2`)
}

// TestEncodingErrorsAreNotKept checks that encode is called again after an error.
func TestEncodingErrorsAreNotKept(t *testing.T) {
	store := newMemStore()
	store.putKey("/registry/pods/a/x", podOnNode(""))
	rig := newRig(t, store, nil)
	e, _ := rig.pods.Get("/registry/pods/a/x")
	boom := errors.New("boom")
	for range 2 {
		if _, err := e.Encoding(1, func(*objects.Entry) ([]byte, error) { return nil, boom }); !errors.Is(err, boom) {
			t.Error(err)
		}
	}
	if b, err := e.Encoding(1, func(*objects.Entry) ([]byte, error) { return []byte("ok"), nil }); err != nil || string(b) != "ok" {
		t.Errorf("got %q, %v, want ok", b, err)
	}
}

// TestEncodingsStayWithinBudget checks that encodings stay within their budget, and that an encoding in
// frequent use is kept.
func TestEncodingsStayWithinBudget(t *testing.T) {
	const size, limit = 1000, 20_000
	store := newMemStore()
	for i := range 100 {
		store.putKey(fmt.Sprintf("/registry/pods/a/%03d", i), podOnNode(""))
	}
	rig := newRig(t, store, func(c *watchcache.Config) { c.Memory = memory.New(limit*3/2, nil) })
	encoded := map[string]int{}
	read := func(e *objects.Entry) {
		b, err := e.Encoding(7, func(e *objects.Entry) ([]byte, error) {
			encoded[e.Name()]++
			return bytes.Repeat([]byte{e.Name()[2]}, size), nil
		})
		if err != nil || len(b) != size || b[0] != e.Name()[2] {
			t.Fatalf("%s: got %d bytes, %v, want its own %d", e.Name(), len(b), err, size)
		}
	}
	hot, _ := rig.pods.Get("/registry/pods/a/050")
	read(hot)
	for range 3 {
		rig.pods.Snapshot().Ascend(rig.pods.Prefix(), "", func(e *objects.Entry) bool {
			read(e)
			read(hot)
			return true
		})
	}
	cached := 0
	rig.pods.Snapshot().Ascend(rig.pods.Prefix(), "", func(e *objects.Entry) bool {
		if _, ok := e.Encoded(7); ok {
			cached++
		}
		return true
	})
	if cached*size > limit || cached*size < limit/2 {
		t.Errorf("%d encodings are cached, want %d to %d", cached, limit/2/size, limit/size)
	}
	if encoded["050"] != 1 || encoded["001"] != 3 {
		t.Errorf("encoded the hot entry %d times and another one %d times, want 1 and 3", encoded["050"], encoded["001"])
	}
	rig.wantMetrics(fmt.Sprintf(`binnacle_watch_cache_encodings %d`, cached))
}

// TestEncodingsOfForgottenEntriesAreDropped checks that encodings of entries that only readers
// reference do not count towards the budget.
func TestEncodingsOfForgottenEntriesAreDropped(t *testing.T) {
	for _, test := range []struct{ events, cached int }{
		{events: 64, cached: 64},
		{events: 1 << 17, cached: 256},
	} {
		t.Run(fmt.Sprint(test.events), func(t *testing.T) { testEncodingsOfDeletedObjects(t, test.events, test.cached) })
	}
}

// testEncodingsOfDeletedObjects checks how many encodings are kept of deleted objects that history still contains.
func testEncodingsOfDeletedObjects(t *testing.T, events, cached int) {
	store := newMemStore()
	after := define(store, "pods", "")
	rig := newRig(t, store, func(c *watchcache.Config) { withDefinitions(c); c.LogEvents = events })
	w := rig.watch(watchcache.WatchOptions{AfterRevision: after})
	for i := range 500 {
		store.putKey("/registry/pods/a/x", object{Data: fmt.Sprint(i)}.String())
		store.deleteKey("/registry/pods/a/x")
		evs, err := drain(rig.ctx, w, rig.awaitWrites(), 8)
		if err != nil || len(evs) != 2 {
			t.Fatalf("got events %v, %v, want 2", evs, err)
		}
		for _, ev := range evs {
			if _, err := ev.Entry.Encoding(1, func(e *objects.Entry) ([]byte, error) {
				return slices.Clone(e.Stored()), nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	rig.wantMetrics(fmt.Sprintf(`binnacle_watch_cache_encodings %d`, cached))
	rig.undefine("pods")
	rig.wantMetrics(`binnacle_watch_cache_encodings 0`, `binnacle_watch_cache_encoding_bytes 0`)
	if n := rig.metric(`binnacle_watch_cache_history_bytes`); n > 1000 { // the end of the definition
		t.Errorf("%v bytes of history are left, want at most 1000", n)
	}
}

// TestEncodingFinishedAfterRemovalIsNotKept checks that an encoding that is finished after its
// resource was removed is not kept.
func TestEncodingFinishedAfterRemovalIsNotKept(t *testing.T) {
	store := newMemStore()
	define(store, "pods", "")
	store.putKey("/registry/pods/a/x", podOnNode(""))
	rig := newRig(t, store, withDefinitions)
	e, _ := rig.pods.Get("/registry/pods/a/x")
	b, err := e.Encoding(1, func(*objects.Entry) ([]byte, error) {
		rig.undefine("pods")
		return []byte("late"), nil
	})
	if err != nil || string(b) != "late" {
		t.Errorf("got %q, %v, want late", b, err)
	}
	rig.wantMetrics(`binnacle_watch_cache_encodings 0`, `binnacle_watch_cache_encoding_bytes 0`)
}

// TestEncodingsOfForgottenEntriesAreNotKept checks that encodings of entries that the cache has
// forgotten are not kept, because they would keep the entries alive. These entries are the last
// version, its deletion event and entries replaced by a load.
func TestEncodingsOfForgottenEntriesAreNotKept(t *testing.T) {
	store := newMemStore()
	store.putKey("/registry/pods/a/x", podOnNode(""))
	src := &gatedSource{Source: watchcachetest.NewSource(store, "/registry/"), gate: make(chan struct{}, 1)}
	src.gate <- struct{}{}
	rig := newRig(t, store, func(c *watchcache.Config) { c.LogEvents, c.Source = 64, src })
	w := rig.watch(watchcache.WatchOptions{AfterRevision: 2})
	first, _ := rig.pods.Get("/registry/pods/a/x")
	store.deleteKey("/registry/pods/a/x")
	evs, err := drain(rig.ctx, w, rig.awaitWrites(), 8)
	if err != nil || len(evs) != 1 {
		t.Fatalf("got events %v, %v, want 1", evs, err)
	}
	for i := range 100 {
		store.putKey("/registry/pods/a/y", object{Data: fmt.Sprint(i)}.String())
	}
	rig.awaitWrites()
	replaced, _ := rig.pods.Get("/registry/pods/a/y")
	encode := func(e *objects.Entry) ([]byte, error) { return slices.Clone(e.Stored()), nil }
	if _, err := replaced.Encoding(1, encode); err != nil {
		t.Fatal(err)
	}
	rig.wantMetrics(`binnacle_watch_cache_encodings 1`)
	store.breakWatches()
	<-src.lost()
	store.putKey("/registry/pods/a/y", podOnNode(""))
	store.compact(store.newestRevision())
	close(src.gate)
	rig.awaitWrites()
	for _, e := range []*objects.Entry{first, evs[0].Entry, replaced} {
		if b, err := e.Encoding(1, encode); err != nil || !bytes.Equal(b, e.Stored()) {
			t.Errorf("got %q, %v, want %q", b, err, e.Stored())
		}
		if _, ok := e.Encoded(1); ok {
			t.Errorf("%s at %d: got a kept encoding, want it released", e.Key(), e.Revision)
		}
	}
	rig.wantMetrics(`binnacle_watch_cache_encodings 0`, `binnacle_watch_cache_encoding_bytes 0`)
}

// TestHistoryEvictsEncodings checks that history takes precedence over encodings.
func TestHistoryEvictsEncodings(t *testing.T) {
	const limit = 300_000
	store := newMemStore()
	for i := range 100 {
		store.putKey(fmt.Sprintf("/registry/pods/a/%03d", i), podOnNode(""))
	}
	reg := prometheus.NewRegistry()
	rig := newRig(t, store, func(c *watchcache.Config) {
		c.Memory = memory.New(limit, reg)
		keepValuesAsStored(c)
	})
	encodings := func() float64 { return rig.metric("binnacle_watch_cache_encoding_bytes") }
	// fill encodes all pods, and returns the bytes of encodings once they fit the budget beside the
	// history. The goroutine that applies batches may still evict when the last pod is encoded.
	fill := func(history float64) float64 {
		rig.pods.Snapshot().Ascend(rig.pods.Prefix(), "", func(e *objects.Entry) bool {
			_, err := e.Encoding(1, func(*objects.Entry) ([]byte, error) { return make([]byte, 4000), nil })
			return err == nil
		})
		for (encodings()+history > limit || encodings() > limit*2/3) && rig.ctx.Err() == nil {
			runtime.Gosched()
		}
		return encodings()
	}
	if n := fill(0); n > limit*2/3 || n < limit/2 {
		t.Errorf("without history encodings take %v bytes, want about %d", n, limit*2/3)
	}
	for i := range 180 {
		store.putKey("/registry/nodes/n", object{Data: strings.Repeat("x", 1000+i%2)}.String())
	}
	rig.awaitWrites()
	history := rig.metric("binnacle_watch_cache_history_bytes")
	for tries := 0; history > limit*2/3 && tries < 20; tries++ { // memory is settled with the next batch
		store.putKey("/registry/nodes/n", object{Data: strings.Repeat("x", 1000+tries%2)}.String())
		rig.awaitWrites()
		history = rig.metric("binnacle_watch_cache_history_bytes")
	}
	if history < limit/4 || history > limit*2/3 {
		t.Errorf("history takes %v bytes, want a quarter to two thirds of the limit", history)
	}
	if n := fill(history); n+history > limit || n < limit/6 {
		t.Errorf("with %v bytes of history encodings take %v bytes, want at most %v and at least %d",
			history, n, limit-history, limit/6)
	}
}

// TestEncodingOfUncachedEntryIsNotKept checks that an entry outside the cache keeps no encoding.
func TestEncodingOfUncachedEntryIsNotKept(t *testing.T) {
	rig := newRig(t, newMemStore(), nil)
	e := rig.pods.Entry(storage.KeyValue{Key: "/registry/pods/a/x", Value: []byte(labelled("a")), ModRevision: 7, CreateRevision: 5})
	if e.Name() != "x" || e.Labels().Get("app") != "a" || e.Revision != 7 || e.CreateRevision != 5 {
		t.Fatalf("Entry = %+v, want name x, label app=a, revision 7, created at 5", e)
	}
	if b, err := e.Encoding(1, func(*objects.Entry) ([]byte, error) { return []byte("b"), nil }); err != nil || string(b) != "b" {
		t.Errorf("got %q, %v, want b", b, err)
	}
	if _, ok := e.Encoded(1); ok {
		t.Error("uncached entry: got a kept encoding, want none")
	}
}
