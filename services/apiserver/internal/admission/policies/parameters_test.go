package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// fakeStore is a store that sends the batches of a test.
type fakeStore struct {
	batches chan storage.Batch
	applied chan error
}

func (fakeStore) Load(context.Context, func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, nil
}

func (f fakeStore) Follow(ctx context.Context, _ storage.Position, apply func(storage.Batch) error) error {
	for {
		select {
		case b := <-f.batches:
			f.applied <- apply(b)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (fakeStore) Progress(context.Context) error                                 { return nil }
func (fakeStore) VerifyHistory(context.Context, storage.Position) (int64, error) { return 1, nil }

// fixture is a cache of config maps that serve as parameters.
type fixture struct {
	t        *testing.T
	kind     *apiset.Resource
	source   fakeStore
	params   *Parameters
	revision int64
	charged  int  // bytes that requests were charged; tests reset it
	isBusy   bool // the limiter for large requests rejects
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	objectCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	out := &fixture{t: t, source: fakeStore{make(chan storage.Batch), make(chan error)}, revision: 1}
	kind := catalog.Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	cache, err := watchcache.New(
		watchcache.Config{Source: out.source, CurrentRevision: out.source, Resources: []watchcache.ResourceConfig{{
			Name:   kind.Resource,
			Prefix: apiset.KeyPrefix("/registry", kind),
			Attributes: func(_ string, value []byte) (attributes.Attributes, error) {
				a, err := objectCodec.ForKind(kind).Attributes(value)
				return attributes.Attributes{Namespace: a.Namespace, Name: a.Name, Labels: attributes.SetFromPairs(a.Labels)}, err
			},
		}}},
	)
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
	out.kind = apiset.Builder{Codec: objectCodec, Cache: cache, Root: "/registry"}.Set(catalog, 0).Resource(kind.GVR())
	out.params, err = NewParameters(
		func(schema.GroupVersionKind) *apiset.Resource { return out.kind },
		func(context.Context, *apiset.Resource) error { return nil },
	)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// put writes a config map with size bytes of text.
func (f *fixture) put(name string, size int) {
	f.t.Helper()
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"set": "one"}},
		Data:       map[string]string{"text": strings.Repeat("x", size)},
	}
	value, err := f.kind.Coder.EncodeStored(configMap)
	if err != nil {
		f.t.Fatal(err)
	}
	event := storage.Event{Type: storage.Updated, Key: f.kind.Key("default", name), CreateRevision: 2, Value: value}
	if _, exists := f.kind.Store.Get(event.Key); !exists {
		event.Type, event.CreateRevision = storage.Created, f.revision+1
	}
	f.send(event)
}

// remove deletes a config map.
func (f *fixture) remove(name string) {
	f.t.Helper()
	f.send(storage.Event{Type: storage.Deleted, Key: f.kind.Key("default", name)})
}

// send sends an event at the next revision and waits until the cache has applied it.
func (f *fixture) send(event storage.Event) {
	f.t.Helper()
	f.revision++
	event.Revision = f.revision
	f.source.batches <- storage.Batch{Events: []storage.Event{event}, Revision: f.revision}
	if err := <-f.source.applied; err != nil {
		f.t.Fatalf("apply an event of type %v for %s: got %v, want no error", event.Type, event.Key, err)
	}
}

// throttled is the result of lookup for a request that the limiter rejects.
const throttled = -1

// lookup returns the bytes of text of the named parameter, or of all parameters if name is empty.
// It returns throttled if the limiter rejects the request.
func (f *fixture) lookup(name string) (size int) {
	f.t.Helper()
	ref := &admissionregistrationv1.ParamRef{Name: name}
	if name == "" {
		ref.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"set": "one"}}
	}
	ctx := requesttest.WithInfo(f.t.Context(), &requestinfo.Info{Verb: "create"})
	request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(n int) bool { f.charged += n; return !f.isBusy }}
	found, err := f.params.forBinding(ctx, f.kind, referenceOf(ref), "default")
	if f.isBusy && apierrors.IsTooManyRequests(err) {
		return throttled
	}
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range found {
		tree, err := found[i].tree(ctx)
		if err != nil {
			f.t.Fatal(err)
		}
		size += len(tree["data"].(map[string]any)["text"].(string))
	}
	return size
}

// cached returns the names of the cached parameters, the least recently used first.
func (f *fixture) cached() (names []string) {
	f.t.Helper()
	bytes := 0
	for _, k := range f.params.trees.byKey.Keys() {
		v, _ := f.params.trees.byKey.Peek(k)
		bytes += v.size
		names = append(names, strings.TrimPrefix(k.object, f.kind.Prefix+"default/"))
	}
	if bytes != f.params.trees.bytes || bytes > maxCacheBytes || len(names) > maxCachedParameters {
		f.t.Errorf("got %d cached parameters of %d bytes, want at most %d of at most %d bytes and the counted %d bytes",
			len(names), bytes, maxCachedParameters, maxCacheBytes, f.params.trees.bytes)
	}
	return names
}

// cacheStep is one write or lookup of a test of the cache, with the wanted state after it.
type cacheStep struct {
	run         func(*fixture) (size int)
	wantSize    int      // bytes of text that a lookup returns
	wantCharged int      // least cost that the request is charged; 0 if it must not be charged
	wantCached  []string // cached parameters, the least recently used first
}

// writing returns a step that writes a parameter with size bytes of text.
func writing(name string, size int, wantCached ...string) cacheStep {
	return cacheStep{run: func(f *fixture) int { f.put(name, size); return 0 }, wantCached: wantCached}
}

// deleting returns a step that deletes a parameter.
func deleting(name string, wantCached ...string) cacheStep {
	return cacheStep{run: func(f *fixture) int { f.remove(name); return 0 }, wantCached: wantCached}
}

// lookingUp returns a step that looks up the named parameter without a charge.
func lookingUp(name string, wantSize int, wantCached ...string) cacheStep {
	return cacheStep{run: func(f *fixture) int { return f.lookup(name) }, wantSize: wantSize, wantCached: wantCached}
}

// selectingAll returns a step that selects all parameters without a charge.
func selectingAll(wantSize int, wantCached ...string) cacheStep {
	return lookingUp("", wantSize, wantCached...)
}

// charging returns the step with the least cost that its request is charged.
func (s cacheStep) charging(wantCharged int) cacheStep {
	s.wantCharged = wantCharged
	return s
}

// TestParameterCacheKeepsOnlySmallParameters checks which parameters stay in the cache, and that
// only requests for parameters that are too large for the cache are charged.
func TestParameterCacheKeepsOnlySmallParameters(t *testing.T) {
	const small, large = 1000, maxParameterBytes + 1
	for name, steps := range map[string][]cacheStep{
		"small parameters are cached": {
			writing("a", small),
			writing("b", small+1),
			lookingUp("a", small, "a"),
			selectingAll(2*small+1, "a", "b"),
			lookingUp("a", small, "b", "a"),
		},
		"large parameters are not cached": {
			writing("a", large),
			writing("b", small),
			lookingUp("a", large).charging(large),
			selectingAll(large+small, "b").charging(large),
		},
		"changed parameter is decoded again": {
			writing("a", small),
			lookingUp("a", small, "a"),
			writing("a", 2*small, "a"),
			lookingUp("a", 2*small, "a"),
		},
		"parameter that became large leaves the cache": {
			writing("a", small),
			lookingUp("a", small, "a"),
			writing("a", large, "a"),
			lookingUp("a", large).charging(large),
		},
		"lookup of a deleted parameter drops it": {
			writing("a", small),
			lookingUp("a", small, "a"),
			deleting("a", "a"),
			lookingUp("a", 0),
		},
		"deleted parameters are dropped when another is added": {
			writing("a", small),
			writing("b", small),
			selectingAll(2*small, "a", "b"),
			deleting("a", "a", "b"),
			deleting("b", "a", "b"),
			writing("c", small, "a", "b"),
			selectingAll(small, "c"),
		},
		"recreated parameter is decoded again": {
			writing("a", small),
			lookingUp("a", small, "a"),
			deleting("a", "a"),
			writing("a", 2*small, "a"),
			lookingUp("a", 2*small, "a"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			fixture := newFixture(t)
			for i, step := range steps {
				fixture.charged = 0
				if got := step.run(fixture); got != step.wantSize {
					t.Errorf("step %d: got %d bytes, want %d", i, got, step.wantSize)
				}
				if fixture.charged < step.wantCharged || step.wantCharged == 0 && fixture.charged > 0 {
					t.Errorf("step %d: got cost %d, want %d", i, fixture.charged, step.wantCharged)
				}
				if got := fixture.cached(); !slices.Equal(got, step.wantCached) {
					t.Errorf("step %d: got %q in the cache, want %q", i, got, step.wantCached)
				}
			}
		})
	}
}

// TestParameterCacheIsBounded checks that bytes and number are bounded, and the least recently used
// parameter is evicted.
func TestParameterCacheIsBounded(t *testing.T) {
	for name, test := range map[string]struct{ size, wantMost, wantLeast int }{
		"large parameters":               {size: 60_000, wantMost: maxCacheBytes / 60_000, wantLeast: maxCacheBytes/60_000 - 2},
		"small parameters":               {size: 10, wantMost: maxCachedParameters, wantLeast: maxCachedParameters},
		"parameters of the average size": {size: maxCacheBytes / maxCachedParameters, wantMost: maxCachedParameters, wantLeast: maxCachedParameters - 20},
	} {
		t.Run(name, func(t *testing.T) {
			fixture := newFixture(t)
			const many = maxCachedParameters + 10
			for i := range many {
				fixture.put(fmt.Sprintf("%04d", i), test.size)
			}

			for i := range many {
				if got := fixture.lookup(fmt.Sprintf("%04d", i)); got != test.size {
					t.Fatalf("parameter %d: got %d bytes, want %d", i, got, test.size)
				}
			}
			cached := fixture.cached()
			if len(cached) > test.wantMost || len(cached) < test.wantLeast || cached[len(cached)-1] != fmt.Sprintf("%04d", many-1) {
				t.Errorf("got %d cached parameters %q, want %d to %d with the last one",
					len(cached), cached, test.wantLeast, test.wantMost)
			}
		})
	}
}

// TestSelectedParametersAreChargedTogether checks that selected parameters are charged before any
// is decoded. A throttled request decodes none. If their total size would fill the cache, none is
// cached.
func TestSelectedParametersAreChargedTogether(t *testing.T) {
	const size, many = 40_000, maxSelectionBytes/40_000 + 1
	fixture := newFixture(t)
	fixture.put("one", size)
	fixture.isBusy = true
	if got := fixture.lookup("one"); got != size || fixture.charged != 0 {
		t.Errorf("one parameter: got %d bytes at cost %d, want %d bytes at cost 0", got, fixture.charged, size)
	}
	fixture.put("two", size)
	if got := fixture.lookup(""); got != throttled || fixture.charged < 2*size {
		t.Errorf("two parameters, throttled: got %d bytes at cost %d, want %d at cost %d or more",
			got, fixture.charged, throttled, 2*size)
	}
	if got := fixture.cached(); !slices.Equal(got, []string{"one"}) {
		t.Errorf("two parameters, throttled: got %q in the cache, want [\"one\"]", got)
	}
	fixture.isBusy = false
	for i := range many {
		fixture.put(fmt.Sprint("other", i), size)
	}
	if got := fixture.lookup(""); got != (many+2)*size {
		t.Errorf("%d parameters: got %d bytes, want %d", many+2, got, (many+2)*size)
	}
	if got := fixture.cached(); !slices.Equal(got, []string{"one"}) {
		t.Errorf("%d parameters: got %q in the cache, want [\"one\"]", many+2, got)
	}
}

// TestCanceledRequestsDecodeNoParameters checks that a canceled request decodes no parameter, and
// that its error does not count as a failure of the policy.
func TestCanceledRequestsDecodeNoParameters(t *testing.T) {
	fixture := newFixture(t)
	fixture.put("a", 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ref := referenceOf(&admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{}})
	found, err := fixture.params.forBinding(ctx, fixture.kind, ref, "default")
	if err != nil || len(found) != 1 {
		t.Fatalf("got %d parameters and error %v, want one and no error", len(found), err)
	}
	cancel()
	if _, err := found[0].tree(ctx); !errors.Is(err, context.Canceled) || !requestEnded(ctx, err) {
		t.Errorf("decode after the cancellation: got error %v, want %v", err, context.Canceled)
	}
	if _, err := fixture.params.forBinding(ctx, fixture.kind, ref, "default"); !errors.Is(err, context.Canceled) || !requestEnded(ctx, err) {
		t.Errorf("select after the cancellation: got error %v, want %v", err, context.Canceled)
	}
	if got := fixture.cached(); len(got) != 0 {
		t.Errorf("got %q in the cache, want it empty", got)
	}
}

// TestParameterCachedTwiceCountsOnce checks that an object that two requests decode concurrently
// counts once.
func TestParameterCachedTwiceCountsOnce(t *testing.T) {
	fixture := newFixture(t)
	fixture.put("a", 1000)
	fixture.lookup("a")
	key := fixture.params.trees.byKey.Keys()[0]
	tree, _ := fixture.params.trees.byKey.Peek(key)
	fixture.params.trees.add(key, tree, func(string) bool { return true })
	if got := fixture.cached(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %q in the cache, want [\"a\"]", got)
	}
}

// TestSingleLargeParameterIsNotThrottled checks that a selector that selects one object is charged
// but not throttled.
func TestSingleLargeParameterIsNotThrottled(t *testing.T) {
	fixture := newFixture(t)
	fixture.put("one", request.LargeBody)
	fixture.isBusy = true
	if got := fixture.lookup(""); got != request.LargeBody || fixture.charged < request.LargeBody {
		t.Errorf("got %d bytes at cost %d, want %d bytes at this cost or more", got, fixture.charged, request.LargeBody)
	}
}

// TestCorruptParameterFailsSelector checks that a selection fails if any object is corrupt, because
// the selector may select it.
func TestCorruptParameterFailsSelector(t *testing.T) {
	fixture := newFixture(t)
	fixture.put("a", 1000)
	key, revision := fixture.kind.Key("default", "b"), fixture.revision+1
	fixture.send(storage.Event{
		Type:           storage.Created,
		Key:            key,
		CreateRevision: revision,
		Seal: &storage.Seal{
			Stored: []byte("x"),
			Err:    &storage.CorruptObjectError{Key: key, Revision: revision, Err: errors.New("corrupt data")},
		},
	})
	fixture.put("c", 1000) // an intact object after the corrupt one
	ref := referenceOf(&admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"set": "one"}}})
	if found, err := fixture.params.forBinding(t.Context(), fixture.kind, ref, "default"); err == nil ||
		!strings.Contains(err.Error(), "corrupt data") {
		t.Errorf("got %d parameters, %v; want an error about the corrupt object", len(found), err)
	}
}
