package watchcache_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/storage"
)

// manualSource is a source whose batches a benchmark applies itself.
type manualSource struct {
	items []storage.KeyValue
	apply chan func(storage.Batch) error
}

// Load implements watchcache.Source.
func (s *manualSource) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, page(s.items)
}

// Follow implements watchcache.Source.
func (s *manualSource) Follow(ctx context.Context, _ storage.Position, apply func(storage.Batch) error) error {
	select {
	case s.apply <- apply:
		<-ctx.Done()
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Progress implements watchcache.Source.
func (s *manualSource) Progress(context.Context) error { return nil }

// fixedAttributes returns the attributes of a pod with 10 labels without decoding, so that a
// benchmark measures only the cache.
func fixedAttributes(prefix string, nodes int) func(string, []byte) (attributes.Attributes, error) {
	set := map[string]string{}
	for i := range 10 {
		set[fmt.Sprintf("example.com/label-%d", i)] = fmt.Sprintf("value-%d", i)
	}
	labels := attributes.SetFromMap(set)
	return func(key string, value []byte) (attributes.Attributes, error) {
		ns, name, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
		node := int(value[0]) | int(value[1])<<8
		return attributes.Attributes{
			Namespace: ns,
			Name:      name,
			Labels:    labels,
			Fields: attributes.SetFromPairs([]attributes.Pair{
				{Key: nodeField, Value: fmt.Sprintf("node-%d", node%nodes)}, {Key: "status.phase", Value: "Running"},
			}),
		}, nil
	}
}

// benchPods and benchNodes are the numbers of pods and of their nodes. benchSize is the size of a
// value in bytes.
const benchPods, benchNodes, benchSize = 10_000, 2_000, 3 << 10

// benchKey returns the key of a pod.
func benchKey(i int) string {
	return fmt.Sprintf("/registry/pods/namespace-%02d/pod-%05d", i%100, i%benchPods)
}

// benchValue returns a value whose first two bytes are the number of the node (see
// fixedAttributes).
func benchValue(i int) []byte {
	v := make([]byte, benchSize)
	v[0], v[1] = byte(i%benchNodes), byte(i%benchNodes>>8)
	return v
}

// sortByKey returns values in the order of their keys.
func sortByKey(byKey map[string]storage.KeyValue) []storage.KeyValue {
	items := make([]storage.KeyValue, 0, len(byKey))
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		items = append(items, byKey[key])
	}
	return items
}

// newBench returns a cache of benchPods pods, and a function that changes pod i.
func newBench(b testing.TB) (*watchcache.Cache, func(i int)) {
	b.Helper()
	byKey := map[string]storage.KeyValue{}
	for i := range benchPods {
		byKey[benchKey(i)] = storage.KeyValue{Key: benchKey(i), Value: benchValue(i), ModRevision: 1, CreateRevision: 1}
	}
	src := &manualSource{items: sortByKey(byKey), apply: make(chan func(storage.Batch) error)}
	res := resourceConfig("pods")
	res.Attributes = fixedAttributes(res.Prefix, benchNodes)
	c, err := watchcache.New(watchcache.Config{Source: src, CurrentRevision: newMemStore(), Resources: []watchcache.ResourceConfig{res}})
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
		err := apply(storage.Batch{
			Revision: rev,
			Events: []storage.Event{{
				Type:           storage.Updated,
				Key:            benchKey(i),
				Revision:       rev,
				CreateRevision: 1,
				Value:          benchValue(i),
			}},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// benchmarkApply measures the time from a change until all watchers that it concerns have received
// it.
func benchmarkApply(b *testing.B, watchers, deliveries int, sel func(i int) objects.Selection) {
	c, write := newBench(b)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var received atomic.Int64
	arrived := make(chan struct{}, 1)
	target := int64(deliveries)
	for i := range watchers {
		w, err := c.Store("pods").Watch(watchcache.WatchOptions{Selection: sel(i), AfterRevision: 1})
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
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(deliveries), "ns/delivery")
}

// BenchmarkApplyAlone measures a change without watchers.
func BenchmarkApplyAlone(b *testing.B) {
	_, write := newBench(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		write(i)
	}
}

// BenchmarkApplyNodeWatchers2000 measures a change that concerns one of 2,000 watchers of nodes.
func BenchmarkApplyNodeWatchers2000(b *testing.B) {
	benchmarkApply(b, benchNodes, 1, func(i int) objects.Selection {
		return selection(b, "", "", fmt.Sprintf("%s=node-%d", nodeField, i))
	})
}

// BenchmarkApplyAllWatchers500 measures a change that concerns 500 watchers of all pods.
func BenchmarkApplyAllWatchers500(b *testing.B) {
	benchmarkApply(b, 500, 500, func(int) objects.Selection { return objects.Selection{} })
}

// BenchmarkApplyLabelWatchers500 measures a change that concerns 500 watchers of a label.
func BenchmarkApplyLabelWatchers500(b *testing.B) {
	benchmarkApply(b, 500, 500, func(int) objects.Selection { return selection(b, "", "example.com/label-5=value-5", "") })
}

// BenchmarkSnapshotScan10000 measures lists with different selections.
func BenchmarkSnapshotScan10000(b *testing.B) {
	cache, _ := newBench(b)
	for _, bc := range []struct{ name, namespace, labels, fields string }{
		{name: "all"},
		{name: "namespace", namespace: "namespace-07"},
		{name: "node", fields: nodeField + "=node-7"},
		{name: "label", labels: "example.com/label-5=value-5"},
		{name: "field", fields: "status.phase!=Running"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			sel := selection(b, bc.namespace, bc.labels, bc.fields)
			for b.Loop() {
				cache.Store("pods").Snapshot().Select(sel, "", func(*objects.Entry) bool { return true })
			}
		})
	}
}

// BenchmarkGet measures the lookup of a key.
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

// BenchmarkSnapshotThenWrite measures a write after a snapshot, which copies the part of the tree
// that the snapshot shares.
func BenchmarkSnapshotThenWrite(b *testing.B) {
	c, write := newBench(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Store("pods").Snapshot()
		write(i)
	}
}

// BenchmarkSnapshotAt measures older snapshots, for which changes are undone.
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
			for i := range b.N { // different revisions, so that no snapshot is retained
				if _, ok := c.Store("pods").SnapshotAt(rev-int64(back)-int64(i%16), nil); !ok {
					b.Fatal("no snapshot")
				}
			}
		})
	}
}

// BenchmarkCount measures the count of the remaining objects of a namespace.
func BenchmarkCount(b *testing.B) {
	c, _ := newBench(b)
	sn := c.Store("pods").Snapshot()
	for b.Loop() {
		sn.Count("/registry/pods/namespace-07/", benchKey(4507))
	}
}

// BenchmarkEncodingKept measures reads of a cached encoding.
func BenchmarkEncodingKept(b *testing.B) {
	c, _ := newBench(b)
	e, _ := c.Store("pods").Get(benchKey(1))
	encode := func(e *objects.Entry) ([]byte, error) { return e.Stored(), nil }
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := e.Encoding(3, encode); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkMemory reports the memory per object beside its value. The objects share only the names
// of their labels and fields.
func BenchmarkMemory(b *testing.B) {
	for range b.N {
		before := heapBytes()
		empty := noiseCache(b, 0)
		alone := heapBytes() - before
		before = heapBytes()
		c := noiseCache(b, benchPods)
		b.ReportMetric(float64(heapBytes()-before-alone)/benchPods-noiseSize, "B/entry")
		encode := func(*objects.Entry) ([]byte, error) { return make([]byte, 1), nil }
		before = heapBytes()
		c.Store("pods").Snapshot().Ascend("/registry/pods/", "", func(e *objects.Entry) bool {
			_, err := e.Encoding(1, encode)
			return err == nil
		})
		b.ReportMetric(float64(heapBytes()-before)/benchPods, "B/encoding")
		runtime.KeepAlive(c)
		runtime.KeepAlive(empty)
	}
}

// noiseSize is a size class of the allocator, so that values waste no memory.
const noiseSize = 4 << 10

// noiseCache returns a cache of n pods with random values.
func noiseCache(b testing.TB, n int) *watchcache.Cache {
	b.Helper()
	src := &manualSource{apply: make(chan func(storage.Batch) error)}
	noise := rand.New(rand.NewPCG(20261126, 0))
	for i := range n {
		value := make([]byte, noiseSize)
		for j := 0; j < len(value); j += 8 {
			binary.LittleEndian.PutUint64(value[j:], noise.Uint64())
		}
		key := fmt.Sprintf("/registry/pods/namespace-%02d/web-server-%08x-%05d", i/100, noise.Uint32(), i)
		src.items = append(src.items, storage.KeyValue{Key: key, Value: value, ModRevision: 1, CreateRevision: 1})
	}
	slices.SortFunc(src.items, func(a, b storage.KeyValue) int { return strings.Compare(a.Key, b.Key) })
	recent := new(attributes.InternCache)
	res := resourceConfig("pods")
	res.Attributes = func(key string, value []byte) (attributes.Attributes, error) {
		ns, name, _ := strings.Cut(strings.TrimPrefix(key, res.Prefix), "/")
		return attributes.Attributes{
			Namespace: ns,
			Name:      name,
			Labels: attributes.SetFromPairsLike(recent, []attributes.Pair{
				{Key: "app.kubernetes.io/name", Value: "web-server"}, {Key: "pod-template-hash", Value: fmt.Sprintf("%08x", value[:4])},
			}),
			Fields: attributes.FieldsFromPairsLike(recent, []attributes.Pair{
				{Key: nodeField, Value: fmt.Sprintf("node-%d", int(value[0])|int(value[1]&7)<<8)}, {Key: "status.phase", Value: "Running"},
				{
					Key:   "status.podIP",
					Value: fmt.Sprintf("10.%d.%d.%d", value[4], value[5], value[6]),
				}, {Key: "spec.restartPolicy", Value: "Always"},
				{Key: "spec.schedulerName", Value: "default-scheduler"}, {Key: "spec.serviceAccountName", Value: "default"},
			}),
		}, nil
	}
	c, err := watchcache.New(watchcache.Config{Source: src, CurrentRevision: newMemStore(), Resources: []watchcache.ResourceConfig{res}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	<-src.apply
	src.items = nil
	return c
}

// heapBytes returns the bytes of live objects.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
