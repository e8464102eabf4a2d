package lister

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/storage"
)

// manualSource is a source and store whose batches a test sends.
type manualSource struct {
	batches chan storage.Batch
	applied chan error
}

// Load implements watchcache.Source.
func (manualSource) Load(context.Context, func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, nil
}

// Follow implements watchcache.Source.
func (f manualSource) Follow(ctx context.Context, _ storage.Position, apply func(storage.Batch) error) error {
	for {
		select {
		case b := <-f.batches:
			f.applied <- apply(b)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Progress implements watchcache.Source.
func (manualSource) Progress(context.Context) error                                 { return nil }
func (manualSource) VerifyHistory(context.Context, storage.Position) (int64, error) { return 1, nil }

// maxBytes is the bound of the cache under test.
const maxBytes = 2 << 20

// fixture holds stored limit ranges and counts how many are decoded.
type fixture struct {
	t              *testing.T
	cached         *CachedLister[*corev1.LimitRange]
	defaultObject  *Memoized[*corev1.LimitRange, int]
	source         manualSource
	kind           CachedResource
	revision       int64
	decoded        int
	estimatedSizes []int
	busy           bool
}

// newFixture returns a cached lister of limit ranges that counts decodings.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	created := &fixture{t: t, source: manualSource{make(chan storage.Batch), make(chan error)}, revision: 1}
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	kind := catalog.Resource(corev1.SchemeGroupVersion.WithResource("limitranges"))
	setDefaults := kind.Default
	kind.Default = func(obj registry.Object) {
		created.decoded++
		setDefaults(obj)
	}
	coder, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	prefix := apiset.KeyPrefix("/registry", kind)
	cache, err := watchcache.New(watchcache.Config{
		Source:          created.source,
		CurrentRevision: created.source,
		Resources: []watchcache.ResourceConfig{{
			Name:   kind.Resource,
			Prefix: prefix,
			Attributes: func(key string, _ []byte) (attributes.Attributes, error) {
				namespace, name, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
				return attributes.Attributes{Namespace: namespace, Name: name}, nil
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = cache.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	if err := cache.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	set := apiset.Builder{Codec: coder, Cache: cache, Root: "/registry"}.Set(catalog, 0).Resource(kind.GVR())
	created.kind = CachedResource{Resource: kind.GroupResource(), Prefix: prefix, Store: set.Store, Coder: coder.ForKind(kind)}
	listed := &Objects{Cache: cache}
	if created.cached, err = NewCachedLister[*corev1.LimitRange](listed, created.kind, Bounds{Objects: 4096, Bytes: maxBytes},
		"metadata.name", "spec"); err != nil {
		t.Fatal(err)
	}
	created.defaultObject = &Memoized[*corev1.LimitRange, int]{
		Objects: listed,
		Kind:    created.kind,
		Derive:  func(all []*corev1.LimitRange) int { return len(all) },
	}
	return created
}

// putObject writes a limit range whose type has the given size in bytes.
func (r *fixture) putObject(namespace, name string, size int) {
	r.t.Helper()
	r.revision++
	lr := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        name,
		Annotations: map[string]string{"not": "read"},
	}}
	lr.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitType(strings.Repeat("x", size))}}
	value, err := r.kind.Coder.EncodeStored(lr)
	if err != nil {
		r.t.Fatal(err)
	}
	ev := storage.Event{Type: storage.Updated, Key: r.kind.Prefix + namespace + "/" + name, Value: value, Revision: r.revision}
	if e, exists := r.kind.Store.Get(ev.Key); exists {
		ev.CreateRevision = e.CreateRevision
	} else {
		ev.Type = storage.Created
		ev.CreateRevision = r.revision
	}
	r.source.batches <- storage.Batch{Events: []storage.Event{ev}, Revision: r.revision}
	if err := <-r.source.applied; err != nil {
		r.t.Fatal(err)
	}
}

// readObjects returns the names of the limit ranges of a namespace. It records how many were decoded and
// which sizes were weighed.
func (r *fixture) readObjects(ctx context.Context, namespace string, visit func()) (names []string, err error) {
	r.decoded = 0
	r.estimatedSizes = nil
	ctx = requesttest.WithInfo(ctx, &requestinfo.Info{Verb: "create"})
	request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(size int) bool {
		r.estimatedSizes = append(r.estimatedSizes, size)
		return !r.busy
	}}
	err = r.cached.Each(ctx, namespace, func(lr *corev1.LimitRange) error {
		if len(lr.Spec.Limits) != 1 || lr.Annotations != nil {
			r.t.Errorf("%s: got %d limits, annotations %v, want 1 limit and no annotations", lr.Name, len(lr.Spec.Limits), lr.Annotations)
		}
		names = append(names, lr.Name)
		visit()
		return nil
	})
	if r.cached.bytes > maxBytes {
		r.t.Errorf("%d bytes are cached, want at most %d", r.cached.bytes, maxBytes)
	}
	return names, err
}

// expectObjects checks the objects of a namespace, and how many of them are decoded.
func (r *fixture) expectObjects(namespace string, decoded int, names ...string) {
	r.t.Helper()
	got, err := r.readObjects(r.t.Context(), namespace, func() {})
	if err != nil || !slices.Equal(got, names) || r.decoded != decoded {
		r.t.Errorf("got %q, %d decoded, %v, want %q, %d decoded", got, r.decoded, err, names, decoded)
	}
}

// TestDecodedObjectsAreCached checks that objects are decoded again only after a change and are
// returned in order of creation.
func TestDecodedObjectsAreCached(t *testing.T) {
	r := newFixture(t)
	r.putObject("a", "y", 10)
	r.putObject("a", "x", 10)
	r.putObject("ab", "z", 10)
	r.expectObjects("a", 2, "y", "x")
	r.expectObjects("a", 0, "y", "x")
	r.putObject("a", "y", 20)
	r.expectObjects("a", 1, "y", "x")
	r.expectObjects("ab", 1, "z")
	r.expectObjects("a", 0, "y", "x")
	if len(r.estimatedSizes) != 0 {
		t.Errorf("weighed %d, want none", r.estimatedSizes)
	}
}

// TestLargeNamespaceIsNotCached checks that a large namespace does not evict the objects of
// others.
func TestLargeNamespaceIsNotCached(t *testing.T) {
	r := newFixture(t)
	r.putObject("a", "x", 10)
	r.expectObjects("a", 1, "x")
	for _, name := range []string{"1", "2", "3"} {
		r.putObject("b", name, maxBytes/8)
	}
	r.expectObjects("b", 3, "1", "2", "3")
	r.expectObjects("b", 3, "1", "2", "3")
	if len(r.estimatedSizes) != 1 || r.estimatedSizes[0] < maxBytes/4 {
		t.Errorf("weighed %d, want one total of all objects", r.estimatedSizes)
	}
	r.expectObjects("a", 0, "x")
}

// TestCacheSizeIsBounded checks the limit over all namespaces.
func TestCacheSizeIsBounded(t *testing.T) {
	r := newFixture(t)
	const size = maxBytes / 8
	for i := range 2 * maxBytes / size {
		namespace := fmt.Sprint("n", i)
		r.putObject(namespace, "x", size)
		r.expectObjects(namespace, 1, "x")
		r.expectObjects(namespace, 0, "x")
	}
	r.expectObjects("n0", 1, "x")
}

// TestLargeNamespaceIsRejectedUnderLoad checks that nothing is decoded when the limit for large
// work is reached.
func TestLargeNamespaceIsRejectedUnderLoad(t *testing.T) {
	r := newFixture(t)
	r.putObject("a", "1", request.LargeBody/2)
	r.putObject("a", "2", request.LargeBody/2)
	r.busy = true
	if got, err := r.readObjects(t.Context(), "a", func() {}); !apierrors.IsTooManyRequests(err) || len(got) != 0 || r.decoded != 0 {
		t.Errorf("got %q, %d decoded, %v, want none and TooManyRequests", got, r.decoded, err)
	}
}

// TestDecodingStopsWhenRequestEnds checks that CachedLister and Memoized decode no more objects
// after the request has ended.
func TestDecodingStopsWhenRequestEnds(t *testing.T) {
	r := newFixture(t)
	for _, name := range []string{"1", "2", "3"} {
		r.putObject("a", name, 10)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if got, err := r.readObjects(ctx, "a", cancel); !errors.Is(err, context.Canceled) || len(got) != 1 || r.decoded != 1 {
		t.Errorf("got %q, %d decoded, %v, want one and the cancelation", got, r.decoded, err)
	}
	if _, err := r.defaultObject.Get(ctx); !errors.Is(err, context.Canceled) || r.decoded != 1 {
		t.Errorf("Memoized: got %d decoded, %v, want 1, context.Canceled", r.decoded, err)
	}
	if n, err := r.defaultObject.Get(t.Context()); n != 3 || err != nil {
		t.Errorf("Memoized: got %d, %v, want 3", n, err)
	}
}
