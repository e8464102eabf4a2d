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
	// beforeSwap, if set, is called before swap n, counted from 1. The swap returns its error. The
	// swap is applied if it returns no error, or if it returns applyAnyway.
	beforeSwap func(n int, key string, value []byte) (applyAnyway bool, err error)
}

func (m *memory) Get(_ context.Context, key string, _ int64) (storage.KeyValue, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	stored, ok := m.values[key]
	if !ok {
		return stored, m.revision, storage.ErrNotFound
	}
	return stored, m.revision, nil
}

// startSwap counts a swap and calls beforeSwap. The caller applies the swap if shouldApply is true,
// and returns err in any case.
func (m *memory) startSwap(key string, value []byte) (shouldApply bool, err error) {
	m.mu.Lock()
	m.swaps++
	number, beforeSwap := m.swaps, m.beforeSwap
	m.mu.Unlock()
	if beforeSwap == nil {
		return true, nil
	}
	applyAnyway, err := beforeSwap(number, key, value)
	return applyAnyway || err == nil, err
}

func (m *memory) Create(_ context.Context, key string, value []byte, _ storage.WriteOptions) (int64, error) {
	shouldApply, err := m.startSwap(key, value)
	if !shouldApply {
		return 0, err
	}
	revision, swapErr := m.swap(key, value, 0)
	return revision, errors.Join(err, swapErr)
}

func (m *memory) Update(_ context.Context, key string, value []byte, expected int64, _ storage.WriteOptions) (int64, error) {
	shouldApply, err := m.startSwap(key, value)
	if !shouldApply {
		return 0, err
	}
	revision, swapErr := m.swap(key, value, expected)
	return revision, errors.Join(err, swapErr)
}

func (m *memory) Delete(_ context.Context, key string, expected int64, _ ...storage.Precondition) (int64, error) {
	shouldApply, err := m.startSwap(key, nil)
	if !shouldApply {
		return 0, err
	}
	revision, swapErr := m.swap(key, nil, expected)
	return revision, errors.Join(err, swapErr)
}

// anyRevision as the expected revision makes swap skip the comparison.
const anyRevision = -1

// swap writes a value, or deletes the key if value is nil, provided that the key is at the expected
// revision. 0 means that the key must not exist.
func (m *memory) swap(key string, value []byte, expected int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	live, exists := m.values[key]
	switch {
	case expected == anyRevision || expected == live.ModRevision:
	case expected == 0:
		return 0, &storage.ExistsError{Key: key}
	case !exists:
		return 0, storage.ErrNotFound
	default:
		return 0, &storage.ConflictError{Live: live}
	}
	m.revision++
	event := storage.Event{Type: storage.Deleted, Key: key, Revision: m.revision, Value: bytes.Clone(value)}
	if value == nil {
		delete(m.values, key)
	} else {
		event.Type = storage.Updated
		event.CreateRevision = live.CreateRevision
		if !exists {
			event.Type = storage.Created
			event.CreateRevision = m.revision
		}
		m.values[key] = storage.KeyValue{Key: key, Value: event.Value, ModRevision: m.revision, CreateRevision: event.CreateRevision}
	}
	m.events = append(m.events, event)
	return m.revision, nil
}

// manualSource is a source of the watch cache. Tests send its batches.
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
		case batch := <-f.batches:
			f.applied <- apply(batch)
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
	// mutate and validate, if set, run in the phases of admission. validated lists the requests of
	// the validating phase.
	mutate, validate func(*admission.Request) error
	validated        []*admission.Request
	// commits and rollbacks count the reservations of the allocator that the writer settled.
	commits, rollbacks int
	// written lists the revisions of config maps that were reported to Config.Written.
	written []int64
	// forbidden makes the authorizer deny every request.
	forbidden bool
}

// fixedClock returns now.
func fixedClock() time.Time { return now }

// now is the time of all writes.
var now = time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)

// base is shared by the fixtures of a test.
type base struct {
	catalog *registry.Catalog
	codec   *codec.Codec
	fields  *apply.Fields
}

// newBase returns the base of fixtures with all built-in kinds.
func newBase(t *testing.T) *base {
	t.Helper()
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	return &base{catalog, apiCodec, apply.New(catalog, fixedClock)}
}

// fixture returns a fixture with an empty store at revision 1. customVersions are the versions of
// one custom resource, which the fixture serves beside a few built-in kinds.
func (b *base) fixture(t *testing.T, customVersions ...*registry.Kind) *fixture {
	t.Helper()
	created := &fixture{
		t:      t,
		base:   b,
		store:  &memory{revision: 1, values: map[string]storage.KeyValue{}},
		source: manualSource{make(chan storage.Batch), make(chan error)},
	}
	var resources []watchcache.ResourceConfig
	addResource := func(kind *registry.Kind, coder *codec.KindCodec) {
		resources = append(resources, watchcache.ResourceConfig{
			Name:   kind.GVR().GroupResource().String(),
			Prefix: apiset.KeyPrefix("/registry", kind),
			Attributes: func(_ string, value []byte) (attributes.Attributes, error) {
				a, err := coder.Attributes(value)
				return attributes.Attributes{Namespace: a.Namespace, Name: a.Name}, err
			},
		})
	}
	builtinResources := []string{"configmaps", "pods", "limitranges", "replicationcontrollers", "namespaces", "events"}
	for _, k := range b.catalog.Kinds() {
		if k.Group == "" && slices.Contains(builtinResources, k.Resource) {
			addResource(k, created.codec.ForKind(k))
		}
	}
	if len(customVersions) > 0 {
		k := customVersions[0] // all versions share a key prefix
		coder, err := created.codec.NewKindCodec(k)
		if err != nil {
			t.Fatal(err)
		}
		addResource(k, coder)
	}
	cache, err := watchcache.New(watchcache.Config{
		Source:          created.source,
		CurrentRevision: created.store,
		Resources:       resources,
		ConfirmEvery:    time.Hour,
	})
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
	created.set = sets.Set(b.catalog, 1)
	if len(customVersions) > 0 {
		k := customVersions[0]
		custom, err := sets.Custom(customVersions, cache.Store(apiset.KeyPrefix("/registry", k)), 0)
		if err != nil {
			t.Fatal(err)
		}
		created.set = created.set.WithDefinitions([]apiset.Definition{{Resource: k.GVR().GroupResource(), Versions: custom}}, 2)
	}
	created.writer = writes.New(writes.Config{
		Codec:      created.codec,
		Fields:     b.fields,
		Store:      created.store,
		Admission:  admission.NewChain(nil, admission.Plugin{Name: "test", Plugin: (*plugin)(created)}),
		Authorizer: (*authorizer)(created),
		Allocators: map[schema.GroupResource]writes.Allocator{{Resource: "configmaps"}: (*allocator)(created)},
		Written: func(r schema.GroupResource, revision int64) {
			if r.Resource == "configmaps" {
				created.written = append(created.written, revision)
			}
		},
		Now:    fixedClock,
		Logger: slog.New(slog.DiscardHandler),
	})
	return created
}

// plugin is the admission plugin of a fixture.
type plugin fixture

func (p *plugin) Admit(_ context.Context, r *admission.Request) error {
	if p.mutate != nil {
		return p.mutate(r)
	}
	return nil
}

func (p *plugin) Validate(_ context.Context, r *admission.Request) error {
	p.validated = append(p.validated, r)
	if p.validate != nil {
		return p.validate(r)
	}
	return nil
}

// authorizer is the authorizer of a fixture.
type authorizer fixture

func (a *authorizer) Authorize(context.Context, *authz.Attributes) (authz.Decision, string, error) {
	if a.forbidden {
		return authz.NoOpinion, "", nil
	}
	return authz.Allow, "", nil
}

// allocator is the allocator of config maps. It makes a reservation for each attempt of a write.
type allocator fixture

func (a *allocator) Complete(_, _ registry.Object) field.ErrorList { return nil }
func (a *allocator) Allocate(context.Context, registry.Object, registry.Object, bool) (admission.Reservation, error) {
	return (*reservation)(a), nil
}
func (a *allocator) Release(context.Context, registry.Object) {}

// reservation counts how often it is settled.
type reservation fixture

func (r *reservation) Commit(context.Context)   { r.commits++ }
func (r *reservation) Rollback(context.Context) { r.rollbacks++ }

// kind returns a resource that the fixture serves.
func (f *fixture) kind(resource string) *apiset.Resource {
	f.t.Helper()
	for _, gv := range []schema.GroupVersion{{Version: "v1"}, {Group: "example.com", Version: "v1"}} {
		if found := f.set.Resource(gv.WithResource(resource)); found != nil {
			return found
		}
	}
	f.t.Fatalf("unknown resource %s", resource)
	return nil
}

// syncCache applies all writes of the store to the cache.
func (f *fixture) syncCache() {
	f.t.Helper()
	f.store.mu.Lock()
	batch := storage.Batch{Events: f.store.events, Revision: f.store.revision}
	f.store.events = nil
	f.store.mu.Unlock()
	f.source.batches <- batch
	if err := <-f.source.applied; err != nil {
		f.t.Fatal(err)
	}
}

// storeDirectly writes an object to the store, without a Writer, and returns its revision.
func (f *fixture) storeDirectly(resource *apiset.Resource, obj registry.Object) int64 {
	f.t.Helper()
	value, err := resource.Coder.EncodeStored(obj)
	if err != nil {
		f.t.Fatal(err)
	}
	revision, err := f.store.swap(resource.Key(obj.GetNamespace(), obj.GetName()), value, anyRevision)
	if err != nil {
		f.t.Fatal(err)
	}
	return revision
}

// removeDirectly deletes an object in the store, without a Writer.
func (f *fixture) removeDirectly(resource *apiset.Resource, name string) {
	if _, err := f.store.swap(resource.Key("ns", name), nil, anyRevision); err != nil {
		f.t.Fatal(err)
	}
}

// storedObject returns an object of the store, or nil if it does not exist.
func (f *fixture) storedObject(resource *apiset.Resource, name string) registry.Object {
	f.t.Helper()
	stored, ok := f.store.values[resource.Key("ns", name)]
	if !ok {
		return nil
	}
	obj, err := resource.Coder.DecodeStored(stored.Value, stored.ModRevision)
	if err != nil {
		f.t.Fatal(err)
	}
	return obj
}

// storedConfigMap returns a stored config map. data alternates keys and values.
func storedConfigMap(data ...string) *corev1.ConfigMap {
	config := sentConfigMap(data...)
	config.UID = "uid"
	config.CreationTimestamp = metav1.NewTime(now.Truncate(time.Second))
	return config
}

// sentConfigMap returns a config map as a client sends it. data alternates keys and values.
func sentConfigMap(data ...string) *corev1.ConfigMap {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	for i := 0; i+1 < len(data); i += 2 {
		if config.Data == nil {
			config.Data = map[string]string{}
		}
		config.Data[data[i]] = data[i+1]
	}
	return config
}

// summarize describes a config map in one line: its data, "marked" if it has a deletionTimestamp,
// and its finalizers. The summary of nil is "gone".
func summarize(obj registry.Object) string {
	config, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return "gone"
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(config.Data)) {
		parts = append(parts, key+"="+config.Data[key])
	}
	if config.DeletionTimestamp != nil {
		parts = append(parts, "marked")
	}
	return strings.Join(append(parts, config.Finalizers...), " ")
}

// requestFor returns a request for a config map.
func (f *fixture) requestFor(name string) *writes.Request {
	return f.newRequest("configmaps", name)
}

// newRequest returns a request for an object in namespace "ns".
func (f *fixture) newRequest(resource, name string) *writes.Request {
	return &writes.Request{
		Resource:  f.kind(resource),
		Namespace: "ns",
		Name:      name,
		User:      &request.User{Name: "alice"},
		Manager:   "test",
	}
}
