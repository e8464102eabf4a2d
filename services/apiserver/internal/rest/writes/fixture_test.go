package writes_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/storage"
)

// memory is an in-memory store with a hook before each swap.
type memory struct {
	storage.Interface // nil: methods that writes do not call

	mu       sync.Mutex
	revision int64
	values   map[string]storage.KeyValue
	events   []storage.Event // not yet sent to the cache
	// swaps and reads count calls of the store.
	swaps, reads int
	// before, if set, is called before swap n, counted from 1. Its error is returned. The swap is
	// applied if it returns no error or done.
	before func(n int, key string, value []byte) (done bool, err error)
}

func (m *memory) Get(_ context.Context, key string, _ int64) (storage.KeyValue, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	kv, ok := m.values[key]
	if !ok {
		return kv, m.revision, storage.ErrNotFound
	}
	return kv, m.revision, nil
}

// runHook runs the hook. The swap is applied if more is true.
func (m *memory) runHook(key string, value []byte) (more bool, err error) {
	m.mu.Lock()
	m.swaps++
	n, before := m.swaps, m.before
	m.mu.Unlock()
	if before == nil {
		return true, nil
	}
	done, err := before(n, key, value)
	return done || err == nil, err
}

func (m *memory) Create(_ context.Context, key string, value []byte, _ storage.WriteOptions) (int64, error) {
	more, err := m.runHook(key, value)
	if !more {
		return 0, err
	}
	rev, failed := m.swap(key, value, 0)
	return rev, errors.Join(err, failed)
}

func (m *memory) Update(_ context.Context, key string, value []byte, expected int64, _ storage.WriteOptions) (int64, error) {
	more, err := m.runHook(key, value)
	if !more {
		return 0, err
	}
	rev, failed := m.swap(key, value, expected)
	return rev, errors.Join(err, failed)
}

func (m *memory) Delete(_ context.Context, key string, expected int64, _ ...storage.Precondition) (int64, error) {
	more, err := m.runHook(key, nil)
	if !more {
		return 0, err
	}
	rev, failed := m.swap(key, nil, expected)
	return rev, errors.Join(err, failed)
}

// anyRevision makes put skip the comparison.
const anyRevision = -1

// swap writes a value, or deletes the key if value is nil, provided that the key is at the expected
// revision. 0 means that the key must not exist.
func (m *memory) swap(key string, value []byte, expected int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was, exists := m.values[key]
	switch {
	case expected == anyRevision || expected == was.ModRevision:
	case expected == 0:
		return 0, &storage.ExistsError{Key: key}
	case !exists:
		return 0, storage.ErrNotFound
	default:
		return 0, &storage.ConflictError{Live: was}
	}
	m.revision++
	ev := storage.Event{Type: storage.Deleted, Key: key, Revision: m.revision, Value: bytes.Clone(value)}
	if value == nil {
		delete(m.values, key)
	} else {
		ev.Type = storage.Updated
		ev.CreateRevision = was.CreateRevision
		if !exists {
			ev.Type = storage.Created
			ev.CreateRevision = m.revision
		}
		m.values[key] = storage.KeyValue{Key: key, Value: ev.Value, ModRevision: m.revision, CreateRevision: ev.CreateRevision}
	}
	m.events = append(m.events, ev)
	return m.revision, nil
}

// manualSource is a source of the cache whose batches tests send.
type manualSource struct {
	batches chan storage.Batch
	applied chan error
}

func (manualSource) Load(context.Context, func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, nil
}

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

func (manualSource) Progress(context.Context) error { return nil }

func (m *memory) VerifyHistory(context.Context, storage.Position) (int64, error) { return 1, nil }

// fixture is a writer with its store, cache, admission and authorizer.
type fixture struct {
	*base
	t      *testing.T
	store  *memory
	source manualSource
	set    *apiset.Set
	writer *writes.Writer
	// requests are those that admission saw in the validating phase. admit, if set, returns its
	// result. mutate, if set, runs in the mutating phase.
	requests      []*admission.Request
	mutate, admit func(*admission.Request) error
	// kept and dropped count claims. written lists the revisions reported to Written.
	kept, dropped int
	written       []int64
	forbidden     bool
}

func fixedClock() time.Time { return now }

var now = time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)

// base is shared by the fixtures of a test.
type base struct {
	catalog *registry.Catalog
	codec   *codec.Codec
	fields  *apply.Fields
}

func newBase(t *testing.T) *base {
	t.Helper()
	catalog, err := builtin.Everything(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	return &base{catalog, c, apply.New(catalog, fixedClock)}
}

// fixture returns a fixture with an empty store at revision 1.
func (b *base) fixture(t *testing.T, more ...*registry.Kind) *fixture {
	t.Helper()
	w := &fixture{
		t:      t,
		base:   b,
		store:  &memory{revision: 1, values: map[string]storage.KeyValue{}},
		source: manualSource{make(chan storage.Batch), make(chan error)},
	}
	var resources []watchcache.ResourceConfig
	resource := func(k *registry.Kind, coder *codec.KindCodec) {
		resources = append(resources, watchcache.ResourceConfig{Name: k.GVR().GroupResource().String(), Prefix: apiset.KeyPrefix("/registry", k),
			Attributes: func(_ string, value []byte) (attributes.Attributes, error) {
				a, err := coder.Attributes(value)
				return attributes.Attributes{Namespace: a.Namespace, Name: a.Name}, err
			}})
	}
	for _, k := range b.catalog.Kinds() {
		if slices.Contains([]string{"configmaps", "pods", "limitranges", "replicationcontrollers", "namespaces", "events"}, k.Resource) && k.Group == "" {
			resource(k, w.codec.ForKind(k))
		}
	}
	for _, k := range more[:min(1, len(more))] { // all versions share a store
		coder, err := w.codec.NewKindCodec(k)
		if err != nil {
			t.Fatal(err)
		}
		resource(k, coder)
	}
	cache, err := watchcache.New(watchcache.Config{Source: w.source, CurrentRevision: w.store, Resources: resources, ConfirmEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cache.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if err := cache.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	sets := apiset.Builder{Codec: b.codec, Cache: cache, Root: "/registry", Fields: b.fields}
	w.set = sets.Set(b.catalog, 1)
	if len(more) > 0 {
		custom, err := sets.Custom(more, cache.Store(apiset.KeyPrefix("/registry", more[0])), 0)
		if err != nil {
			t.Fatal(err)
		}
		w.set = w.set.WithDefinitions([]apiset.Definition{{Resource: more[0].GVR().GroupResource(), Versions: custom}}, 2)
	}
	w.writer = writes.New(writes.Config{
		Codec:      w.codec,
		Fields:     b.fields,
		Store:      w.store,
		Admission:  admission.NewChain(nil, admission.Plugin{Name: "test", Plugin: (*plugin)(w)}),
		Authorizer: (*authorizer)(w),
		Allocators: map[schema.GroupResource]writes.Allocator{{Resource: "configmaps"}: (*allocator)(w)},
		Written: func(r schema.GroupResource, rev int64) {
			if r.Resource == "configmaps" {
				w.written = append(w.written, rev)
			}
		},
		Now:    fixedClock,
		Logger: slog.New(slog.DiscardHandler),
	})
	return w
}

type plugin fixture

func (p *plugin) Admit(_ context.Context, r *admission.Request) error {
	if p.mutate != nil {
		return p.mutate(r)
	}
	return nil
}

func (p *plugin) Validate(_ context.Context, r *admission.Request) error {
	p.requests = append(p.requests, r)
	if p.admit != nil {
		return p.admit(r)
	}
	return nil
}

type authorizer fixture

func (a *authorizer) Authorize(context.Context, *authz.Attributes) (authz.Decision, string, error) {
	if a.forbidden {
		return authz.NoOpinion, "", nil
	}
	return authz.Allow, "", nil
}

// allocator makes a claim for each attempt.
type allocator fixture

func (a *allocator) Complete(_, _ registry.Object) field.ErrorList { return nil }
func (a *allocator) Allocate(context.Context, registry.Object, registry.Object, bool) (admission.Reservation, error) {
	return (*claim)(a), nil
}
func (a *allocator) Release(context.Context, registry.Object) {}

type claim fixture

func (c *claim) Commit(context.Context)   { c.kept++ }
func (c *claim) Rollback(context.Context) { c.dropped++ }

func (w *fixture) kind(resource string) *apiset.Resource {
	w.t.Helper()
	for _, gv := range []schema.GroupVersion{{Version: "v1"}, {Group: "example.com", Version: "v1"}} {
		if k := w.set.Resource(gv.WithResource(resource)); k != nil {
			return k
		}
	}
	w.t.Fatalf("unknown resource %s", resource)
	return nil
}

// syncCache applies all writes of the store to the cache.
func (w *fixture) syncCache() {
	w.t.Helper()
	w.store.mu.Lock()
	b := storage.Batch{Events: w.store.events, Revision: w.store.revision}
	w.store.events = nil
	w.store.mu.Unlock()
	w.source.batches <- b
	if err := <-w.source.applied; err != nil {
		w.t.Fatal(err)
	}
}

// storeDirectly writes an object to the store, without a Writer, and returns its revision.
func (w *fixture) storeDirectly(k *apiset.Resource, obj registry.Object) int64 {
	w.t.Helper()
	value, err := k.Coder.EncodeStored(obj)
	if err != nil {
		w.t.Fatal(err)
	}
	rev, err := w.store.swap(k.Key(obj.GetNamespace(), obj.GetName()), value, anyRevision)
	if err != nil {
		w.t.Fatal(err)
	}
	return rev
}

// removeDirectly deletes an object in the store, without a Writer.
func (w *fixture) removeDirectly(k *apiset.Resource, name string) {
	if _, err := w.store.swap(k.Key("ns", name), nil, anyRevision); err != nil {
		w.t.Fatal(err)
	}
}

// storedObject returns an object of the store, or nil if it does not exist.
func (w *fixture) storedObject(k *apiset.Resource, name string) registry.Object {
	w.t.Helper()
	kv, ok := w.store.values[k.Key("ns", name)]
	if !ok {
		return nil
	}
	obj, err := k.Coder.DecodeStored(kv.Value, kv.ModRevision)
	if err != nil {
		w.t.Fatal(err)
	}
	return obj
}

// storedConfigMap returns a stored config map with data given as pairs.
func storedConfigMap(data ...string) *corev1.ConfigMap {
	c := sentConfigMap(data...)
	c.UID = "uid"
	c.CreationTimestamp = metav1.NewTime(now.Truncate(time.Second))
	return c
}

// sentConfigMap returns a config map as a client sends it.
func sentConfigMap(data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	for i := 0; i+1 < len(data); i += 2 {
		if c.Data == nil {
			c.Data = map[string]string{}
		}
		c.Data[data[i]] = data[i+1]
	}
	return c
}

// summarize returns data, deletion mark and finalizers in one line.
func summarize(o registry.Object) string {
	c, ok := o.(*corev1.ConfigMap)
	if !ok {
		return "gone"
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(c.Data)) {
		out = append(out, k+"="+c.Data[k])
	}
	if c.DeletionTimestamp != nil {
		out = append(out, "marked")
	}
	return strings.Join(append(out, c.Finalizers...), " ")
}

// requestFor returns a request for a config map.
func (w *fixture) requestFor(name string) *writes.Request {
	return &writes.Request{Resource: w.kind("configmaps"), Namespace: "ns", Name: name, User: &request.User{Name: "alice"}, Manager: "test"}
}
