package watchcache_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/watchcache"
)

// handFed is a source whose batches a benchmark applies itself.
type handFed struct {
	items []storage.KeyValue
	apply chan func(storage.Batch) error
}

func (s *handFed) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Place, error) {
	return storage.Place{Revision: 1}, page(s.items)
}

func (s *handFed) Follow(ctx context.Context, _ storage.Place, apply func(storage.Batch) error) error {
	select {
	case s.apply <- apply:
		<-ctx.Done()
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (s *handFed) Progress(context.Context) error { return nil }

// fixed has the attributes of a pod of 10 labels, without decoding anything, so
// that the cache's own work is measured.
func fixed(prefix string, nodes int) func(string, []byte) (watchcache.Attributes, error) {
	set := map[string]string{}
	for i := range 10 {
		set[fmt.Sprintf("example.com/label-%d", i)] = fmt.Sprintf("value-%d", i)
	}
	labels := watchcache.SetOf(set)
	return func(key string, value []byte) (watchcache.Attributes, error) {
		ns, name, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
		node := int(value[0]) | int(value[1])<<8
		return watchcache.Attributes{Namespace: ns, Name: name, Labels: labels, Fields: watchcache.MakeSet([]watchcache.Pair{
			{Key: nodeField, Value: fmt.Sprintf("node-%d", node%nodes)}, {Key: "status.phase", Value: "Running"},
		})}, nil
	}
}

const benchPods, benchNodes, benchSize = 10_000, 2_000, 3 << 10

func benchKey(i int) string {
	return fmt.Sprintf("/registry/pods/namespace-%02d/pod-%05d", i%100, i%benchPods)
}

func benchValue(i int) []byte {
	v := make([]byte, benchSize)
	v[0], v[1] = byte(i%benchNodes), byte(i%benchNodes>>8)
	return v
}

func sorted(byKey map[string]storage.KeyValue) []storage.KeyValue {
	items := make([]storage.KeyValue, 0, len(byKey))
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		items = append(items, byKey[key])
	}
	return items
}

func newBench(b testing.TB) (*watchcache.Cache, func(i int)) {
	b.Helper()
	byKey := map[string]storage.KeyValue{}
	for i := range benchPods {
		byKey[benchKey(i)] = storage.KeyValue{Key: benchKey(i), Value: benchValue(i), ModRevision: 1, CreateRevision: 1}
	}
	src := &handFed{items: sorted(byKey), apply: make(chan func(storage.Batch) error)}
	res := resource("pods")
	res.Attributes = fixed(res.Prefix, benchNodes)
	c, err := watchcache.New(watchcache.Config{Source: src, Newest: newMemStore(), Resources: []watchcache.Resource{res}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	apply := <-src.apply
	rev := int64(1)
	return c, func(i int) {
		rev++
		err := apply(storage.Batch{Revision: rev, Events: []storage.Event{{
			Type: storage.Updated, Key: benchKey(i), Revision: rev, CreateRevision: 1, Value: benchValue(i),
		}}})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// benchmarkApply measures what a change costs until all whom it concerns have it.
func benchmarkApply(b *testing.B, watchers, told int, sel func(i int) watchcache.Selection) {
	c, write := newBench(b)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var received atomic.Int64
	arrived := make(chan struct{}, 1)
	target := int64(told)
	for i := range watchers {
		w, err := c.Store("pods").Watch(watchcache.WatchOptions{Selection: sel(i), After: 1})
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			defer w.Close()
			buf := make([]watchcache.Event, 0, 16)
			for {
				evs, err := w.Next(ctx, buf)
				if err != nil {
					return
				}
				if received.Add(int64(len(evs)))%target == 0 {
					arrived <- struct{}{}
				}
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		write(i)
		<-arrived
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(told), "ns/delivery")
}

func BenchmarkApplyAlone(b *testing.B) {
	_, write := newBench(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		write(i)
	}
}

func BenchmarkApplyNodeWatchers2000(b *testing.B) {
	benchmarkApply(b, benchNodes, 1, func(i int) watchcache.Selection {
		return selection(b, "", "", fmt.Sprintf("%s=node-%d", nodeField, i))
	})
}

func BenchmarkApplyAllWatchers500(b *testing.B) {
	benchmarkApply(b, 500, 500, func(int) watchcache.Selection { return watchcache.Selection{} })
}

func BenchmarkApplyLabelWatchers500(b *testing.B) {
	benchmarkApply(b, 500, 500, func(int) watchcache.Selection { return selection(b, "", "example.com/label-5=value-5", "") })
}

func BenchmarkSnapshotScan10000(b *testing.B) {
	c, _ := newBench(b)
	for _, bc := range []struct{ name, namespace, labels, fields string }{
		{"all", "", "", ""}, {"namespace", "namespace-07", "", ""}, {"node", "", "", nodeField + "=node-7"},
		{"label", "", "example.com/label-5=value-5", ""}, {"field", "", "", "status.phase!=Running"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			sel := selection(b, bc.namespace, bc.labels, bc.fields)
			for b.Loop() {
				c.Store("pods").Snapshot().Select(sel, "", func(*watchcache.Entry) bool { return true })
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	c, _ := newBench(b)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = benchKey(i * 7)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Store("pods").Get(keys[i%len(keys)])
	}
}

// A write after each list copies what the list holds of the tree.
func BenchmarkSnapshotThenWrite(b *testing.B) {
	c, write := newBench(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Store("pods").Snapshot()
		write(i)
	}
}

func BenchmarkSnapshotAt(b *testing.B) {
	for _, back := range []int{10, 1000} {
		b.Run(fmt.Sprint(back), func(b *testing.B) {
			c, write := newBench(b)
			for i := range 2000 {
				write(i)
			}
			rev := c.Revision()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N { // each another revision, so that none is kept
				if _, ok := c.Store("pods").SnapshotAt(rev - int64(back) - int64(i%16)); !ok {
					b.Fatal("no snapshot")
				}
			}
		})
	}
}

func BenchmarkCount(b *testing.B) {
	c, _ := newBench(b)
	sn := c.Store("pods").Snapshot()
	for b.Loop() {
		sn.Count("/registry/pods/namespace-07/", benchKey(4507))
	}
}

func BenchmarkEncodingKept(b *testing.B) {
	c, _ := newBench(b)
	e, _ := c.Store("pods").Get(benchKey(1))
	encode := func(e *watchcache.Entry) ([]byte, error) { return e.Stored(), nil }
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := e.Encoding(3, encode); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkMemory reports what an entry takes beside its value.
func BenchmarkMemory(b *testing.B) {
	for range b.N {
		before := heap()
		c, _ := newBench(b)
		per := float64(heap()-before)/benchPods - benchSize
		b.ReportMetric(per, "B/entry")
		encode := func(*watchcache.Entry) ([]byte, error) { return make([]byte, 1), nil }
		before = heap()
		c.Store("pods").Snapshot().Ascend("/registry/pods/", "", func(e *watchcache.Entry) bool {
			_, err := e.Encoding(1, encode)
			return err == nil
		})
		b.ReportMetric(float64(heap()-before)/benchPods, "B/encoding")
		runtime.KeepAlive(c)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
