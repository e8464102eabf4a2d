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
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/storage"
)

// fed is a store that tells what it is given.
type fed struct {
	batches chan storage.Batch
	applied chan error
}

func (fed) Load(context.Context, func([]storage.KeyValue) error) (storage.Place, error) {
	return storage.Place{Revision: 1}, nil
}

func (f fed) Follow(ctx context.Context, _ storage.Place, apply func(storage.Batch) error) error {
	for {
		select {
		case b := <-f.batches:
			f.applied <- apply(b)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (fed) Progress(context.Context) error                        { return nil }
func (fed) Confirm(context.Context, storage.Place) (int64, error) { return 1, nil }

// ranges are limit ranges that are stored, and how many were decoded.
type ranges struct {
	t        *testing.T
	kept     *Kept[*corev1.LimitRange]
	derived  *Derived[*corev1.LimitRange, int]
	source   fed
	kind     Kind
	revision int64
	decoded  int
	weighed  []int
	busy     bool
}

func newRanges(t *testing.T) *ranges {
	t.Helper()
	r := &ranges{t: t, source: fed{make(chan storage.Batch), make(chan error)}, revision: 1}
	catalog, err := builtin.Everything(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	k := catalog.Resource(corev1.SchemeGroupVersion.WithResource("limitranges"))
	filled := k.Default
	k.Default = func(obj registry.Object) {
		r.decoded++
		filled(obj)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	prefix := apiset.KeyPrefix("/registry", k)
	cache, err := watchcache.New(watchcache.Config{Source: r.source, Newest: r.source, Resources: []watchcache.Resource{{
		Name: k.Resource, Prefix: prefix,
		Attributes: func(key string, _ []byte) (watchcache.Attributes, error) {
			namespace, name, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
			return watchcache.Attributes{Namespace: namespace, Name: name}, nil
		},
	}}})
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
	set := apiset.Builder{Codec: c, Cache: cache, Root: "/registry"}.Set(catalog, 0).Resource(k.GVR())
	r.kind = Kind{Resource: k.GroupResource(), Prefix: prefix, Store: set.Store, Coder: c.Of(k)}
	o := &Objects{Cache: cache}
	if r.kept, err = NewKept[*corev1.LimitRange](o, r.kind, "metadata.name", "spec"); err != nil {
		t.Fatal(err)
	}
	r.derived = &Derived[*corev1.LimitRange, int]{Objects: o, Kind: r.kind, Derive: func(all []*corev1.LimitRange) int { return len(all) }}
	return r
}

// put writes a limit range with a type of so many bytes.
func (r *ranges) put(namespace, name string, size int) {
	r.t.Helper()
	r.revision++
	lr := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"not": "read"}}}
	lr.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitType(strings.Repeat("x", size))}}
	value, err := r.kind.Coder.EncodeStored(lr)
	if err != nil {
		r.t.Fatal(err)
	}
	ev := storage.Event{Type: storage.Updated, Key: r.kind.Prefix + namespace + "/" + name, Value: value, Revision: r.revision}
	if e, there := r.kind.Store.Get(ev.Key); there {
		ev.CreateRevision = e.CreateRevision
	} else {
		ev.Type, ev.CreateRevision = storage.Created, r.revision
	}
	r.source.batches <- storage.Batch{Events: []storage.Event{ev}, Revision: r.revision}
	if err := <-r.source.applied; err != nil {
		r.t.Fatal(err)
	}
}

// see shows those of a namespace: their names, how many were decoded for that, and what was weighed.
func (r *ranges) see(ctx context.Context, namespace string, visit func()) (names []string, err error) {
	r.decoded, r.weighed = 0, nil
	ctx = requestinfo.Carry(ctx, &requestinfo.Info{Verb: "create"})
	request.SetWeigh(ctx, func(n int) bool { r.weighed = append(r.weighed, n); return !r.busy })
	err = r.kept.Each(ctx, namespace, func(lr *corev1.LimitRange) error {
		if len(lr.Spec.Limits) != 1 || lr.Annotations != nil {
			r.t.Errorf("%s: %d limits, annotations %v", lr.Name, len(lr.Spec.Limits), lr.Annotations)
		}
		names = append(names, lr.Name)
		visit()
		return nil
	})
	if r.kept.bytes > keptBytes {
		r.t.Errorf("%d bytes are kept", r.kept.bytes)
	}
	return names, err
}

func (r *ranges) want(namespace string, decoded int, names ...string) {
	r.t.Helper()
	got, err := r.see(r.t.Context(), namespace, func() {})
	if err != nil || !slices.Equal(got, names) || r.decoded != decoded {
		r.t.Errorf("%q, %d decoded, %v, want %q, %d decoded", got, r.decoded, err, names, decoded)
	}
}

// TestKeptObjects: what was decoded is, until it changes, and the oldest comes first.
func TestKeptObjects(t *testing.T) {
	r := newRanges(t)
	r.put("a", "y", 10)
	r.put("a", "x", 10)
	r.put("ab", "z", 10)
	r.want("a", 2, "y", "x")
	r.want("a", 0, "y", "x")
	r.put("a", "y", 20)
	r.want("a", 1, "y", "x")
	r.want("ab", 1, "z")
	r.want("a", 0, "y", "x")
	if len(r.weighed) != 0 {
		t.Errorf("%d are weighed", r.weighed)
	}
}

// TestLargeObjectsAreNotKept: a namespace with many has no part of what others keep.
func TestLargeObjectsAreNotKept(t *testing.T) {
	r := newRanges(t)
	r.put("a", "x", 10)
	r.want("a", 1, "x")
	for _, name := range []string{"1", "2", "3"} {
		r.put("b", name, keptTogether/2)
	}
	r.want("b", 3, "1", "2", "3")
	r.want("b", 3, "1", "2", "3")
	if len(r.weighed) != 1 || r.weighed[0] < keptTogether {
		t.Errorf("%d are weighed, want all of them together", r.weighed)
	}
	r.want("a", 0, "x")
}

// TestKeptObjectsAreBounded together.
func TestKeptObjectsAreBounded(t *testing.T) {
	r := newRanges(t)
	const size = keptTogether / 2
	for i := range 2 * keptBytes / size {
		namespace := fmt.Sprint("n", i)
		r.put(namespace, "x", size)
		r.want(namespace, 1, "x")
		r.want(namespace, 0, "x")
	}
	r.want("n0", 1, "x")
}

// TestLargeObjectsWithoutATurn are not looked at.
func TestLargeObjectsWithoutATurn(t *testing.T) {
	r := newRanges(t)
	r.put("a", "1", request.LargeBody/2)
	r.put("a", "2", request.LargeBody/2)
	r.busy = true
	if got, err := r.see(t.Context(), "a", func() {}); !apierrors.IsTooManyRequests(err) || len(got) != 0 || r.decoded != 0 {
		t.Errorf("%q, %d decoded, %v", got, r.decoded, err)
	}
}

// TestObjectsOfWhoLeft: what has not been decoded when a request ends is not decoded for it.
func TestObjectsOfWhoLeft(t *testing.T) {
	r := newRanges(t)
	for _, name := range []string{"1", "2", "3"} {
		r.put("a", name, 10)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if got, err := r.see(ctx, "a", cancel); !errors.Is(err, context.Canceled) || len(got) != 1 || r.decoded != 1 {
		t.Errorf("%q, %d decoded, %v", got, r.decoded, err)
	}
	if _, err := r.derived.Get(ctx); !errors.Is(err, context.Canceled) || r.decoded != 1 {
		t.Errorf("%d decoded, %v", r.decoded, err)
	}
	if n, err := r.derived.Get(t.Context()); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
