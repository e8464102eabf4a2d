package internalclient_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/storage"
)

var configs = internalclient.Collection("", "v1", "configmaps", "ns")

// store holds fixed values and only records writes. VerifyHistory and writes return the
// configured errors.
type store struct {
	storage.Interface // nil; unused methods

	value     storage.KeyValue
	more      []storage.KeyValue // objects after value
	verifyErr error              // of VerifyHistory
	writeErr  error              // of all writes
	// calls lists the writes, last is the value of the last one.
	calls []string
	last  []byte
}

func (s *store) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: s.value.ModRevision}, page(append([]storage.KeyValue{s.value}, s.more...))
}

func (s *store) Follow(ctx context.Context, _ storage.Position, _ func(storage.Batch) error) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s *store) Progress(context.Context) error { return nil }

func (s *store) VerifyHistory(context.Context, storage.Position) (int64, error) {
	return s.value.ModRevision, s.verifyErr
}

func (s *store) Get(_ context.Context, key string, _ int64) (storage.KeyValue, int64, error) {
	if key != s.value.Key {
		return storage.KeyValue{}, s.value.ModRevision, storage.ErrNotFound
	}
	return s.value, s.value.ModRevision, nil
}

// writtenRevision is the revision of all writes.
const writtenRevision = 6

func (s *store) recordWrite(verb, key string, value []byte) (int64, error) {
	s.calls = append(s.calls, verb+" "+key[strings.LastIndex(key, "/")+1:])
	s.last = value
	return writtenRevision, s.writeErr
}

func (s *store) Create(_ context.Context, key string, value []byte, _ storage.WriteOptions) (int64, error) {
	return s.recordWrite("create", key, value)
}

func (s *store) Update(_ context.Context, key string, value []byte, _ int64, _ storage.WriteOptions) (int64, error) {
	return s.recordWrite("update", key, value)
}

func (s *store) Delete(_ context.Context, key string, _ int64, _ ...storage.Precondition) (int64, error) {
	return s.recordWrite("delete", key, nil)
}

// fixture creates servers for a store with the ConfigMap "m".
type fixture struct {
	catalog *registry.Catalog
	codec   *codec.Codec
	kind    *registry.Kind
	value   storage.KeyValue
	plugins []admission.Plugin
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	created := &fixture{catalog: catalog}
	if created.codec, err = codec.New(catalog, builtin.Scheme()); err != nil {
		t.Fatal(err)
	}
	for _, k := range catalog.Kinds() {
		if k.GVR() == configs.GroupVersionResource {
			created.kind = k
		}
	}
	value, err := created.codec.ForKind(created.kind).EncodeStored(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "uid", Labels: map[string]string{"app": "a"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	created.value = storage.KeyValue{Key: apiset.KeyPrefix("/registry", created.kind) + "ns/m", Value: value, ModRevision: 5, CreateRevision: 5}
	return created
}

// newCache returns a cache of ConfigMaps over s. Unless loaded is set, it never becomes ready.
func (f *fixture) newCache(t *testing.T, source *store, loaded bool) *watchcache.Cache {
	t.Helper()
	source.value = f.value
	coder := f.codec.ForKind(f.kind)
	cache, err := watchcache.New(watchcache.Config{
		Source:          source,
		CurrentRevision: source,
		ConfirmEvery:    time.Hour,
		Resources: []watchcache.ResourceConfig{{
			Name: "configmaps", Prefix: apiset.KeyPrefix("/registry", f.kind),
			Attributes: func(_ string, value []byte) (attributes.Attributes, error) {
				a, err := coder.Attributes(value)
				return attributes.Attributes{Namespace: a.Namespace, Name: a.Name, Labels: attributes.SetFromPairs(a.Labels)}, err
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !loaded {
		return cache
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cache.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if err := cache.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return cache
}

// newLoadedCache returns a cache of ConfigMaps over s that is ready.
func (f *fixture) newLoadedCache(t *testing.T, s *store) *watchcache.Cache {
	t.Helper()
	return f.newCache(t, s, true /* loaded */)
}

// newServer returns a server with a cache for all kinds but ConfigMaps, whose cache is own.
func (f *fixture) newServer(server *store, cache, own *watchcache.Cache) *internalclient.Server {
	fields := apply.New(f.catalog, time.Now)
	writer := writes.New(writes.Config{
		Codec:     f.codec,
		Fields:    fields,
		Store:     server,
		Admission: admission.NewChain(nil, f.plugins...),
		Now:       time.Now,
		Logger:    slog.New(slog.DiscardHandler),
	})
	return &internalclient.Server{
		Kinds:  apiset.NewLive(apiset.Builder{Codec: f.codec, Cache: own, Root: "/registry", Fields: fields}.Set(f.catalog, 1)),
		Cache:  cache,
		Codec:  f.codec,
		Writer: func() *writes.Writer { return writer },
		Logger: slog.New(slog.DiscardHandler),
	}
}

// TestInternalReadsAreCurrentOrFail checks that reads never return an old state silently, and fail
// with 429 while a cache reloads.
func TestInternalReadsAreCurrentOrFail(t *testing.T) {
	fixture := newFixture(t)
	for name, test := range map[string]struct {
		loaded, ownLoaded bool // the cache of the server, and that of ConfigMaps
		verifyErr         error
		isWantCurrent     func(error) bool // for reads of the current state
		isWantCached      func(error) bool // for reads of the cached state
	}{
		"both caches are loaded": {loaded: true, ownLoaded: true, isWantCurrent: isNil, isWantCached: isNil},
		"only the cache of ConfigMaps is loaded": {
			ownLoaded:     true,
			isWantCurrent: apierrors.IsTooManyRequests,
			isWantCached:  apierrors.IsTooManyRequests,
		},
		"only the cache of the server is loaded": {
			loaded:        true,
			isWantCurrent: apierrors.IsTooManyRequests,
			isWantCached:  apierrors.IsTooManyRequests,
		},
		"the store is unavailable": {
			loaded:        true,
			ownLoaded:     true,
			verifyErr:     storage.ErrUnavailable,
			isWantCurrent: apierrors.IsInternalError,
			isWantCached:  isNil,
		},
		"the store is too slow": {
			loaded:        true,
			ownLoaded:     true,
			verifyErr:     context.DeadlineExceeded,
			isWantCurrent: apierrors.IsTimeout,
			isWantCached:  isNil,
		},
	} {
		s := &store{verifyErr: test.verifyErr}
		client := &internalclient.Client{Doer: fixture.newServer(s, fixture.newCache(t, s, test.loaded), fixture.newCache(t, s, test.ownLoaded))}
		for verb, do := range map[string]func(any) error{
			"get":  func(out any) error { return client.Get(t.Context(), configs.Named("m"), out) },
			"list": func(out any) error { return client.List(t.Context(), configs, nil, out) },
		} {
			if err := do(&map[string]any{}); !test.isWantCurrent(err) {
				t.Errorf("%s, %s of the current state: got error %v, want another kind of error", name, verb, err)
			}
		}
		for verb, do := range map[string]func(any) error{
			"get":  func(out any) error { return client.GetCached(t.Context(), configs.Named("m"), out) },
			"list": func(out any) error { return client.ListCached(t.Context(), configs, nil, out) },
		} {
			if err := do(&map[string]any{}); !test.isWantCached(err) {
				t.Errorf("%s, %s of the cached state: got error %v, want another kind of error", name, verb, err)
			}
		}
	}
	// The read itself detects that the store was replaced.
	s := &store{verifyErr: &storage.ReplacedError{}}
	cache := fixture.newLoadedCache(t, s)
	client := &internalclient.Client{Doer: fixture.newServer(s, cache, cache)}
	if err := client.Get(t.Context(), configs.Named("m"), &corev1.ConfigMap{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("get after the store was replaced: got error %v, want TooManyRequests", err)
	}
}

func isNil(err error) bool { return err == nil }

// TestWriteErrorsAreRecognizable checks that callers can recognize conflicts and a full store, and
// that calls are counted by verb.
func TestWriteErrorsAreRecognizable(t *testing.T) {
	fixture := newFixture(t)
	objectStore := &store{}
	cache := fixture.newLoadedCache(t, objectStore)
	server := fixture.newServer(objectStore, cache, cache)
	registry := prometheus.NewRegistry()
	server.Metrics = internalclient.NewMetrics(registry)
	client := &internalclient.Client{Doer: server}
	changed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Data: map[string]string{"a": "b"}}
	for name, test := range map[string]struct {
		writeErr error
		isWant   func(error) bool
	}{
		"another client changed the object": {writeErr: &storage.PreconditionError{}, isWant: apierrors.IsConflict},
		"the store is full": {
			writeErr: storage.ErrFull,
			isWant:   func(err error) bool { return errors.Is(err, storage.ErrFull) },
		},
		"the store is unavailable": {
			writeErr: storage.ErrUnavailable,
			isWant:   func(err error) bool { return apierrors.IsInternalError(err) && !errors.Is(err, storage.ErrFull) },
		},
	} {
		objectStore.writeErr = test.writeErr
		for _, out := range []any{nil, &corev1.ConfigMap{}} {
			if err := client.Update(t.Context(), configs.Named("m"), changed.DeepCopy(), out); !test.isWant(err) {
				t.Errorf("update while %s: got error %v, want another kind of error", name, err)
			}
		}
	}
	if err := client.Get(t.Context(), configs.Named("m"), &corev1.ConfigMap{}); err != nil {
		t.Error(err)
	}
	counted := map[string]float64{}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	for _, m := range families[0].GetMetric() {
		labels := ""
		for _, l := range m.GetLabel() {
			labels += l.GetName() + "=" + l.GetValue() + " "
		}
		counted[labels] = m.GetCounter().GetValue()
	}
	// Each of the three cases updates twice.
	if len(counted) != 2 || counted["resource=configmaps subresource= verb=PUT "] != 6 ||
		counted["resource=configmaps subresource= verb=GET "] != 1 {
		t.Errorf("got counters %v, want 6 PUT and 1 GET of configmaps", counted)
	}
}

// TestAllVerbsReturnResults checks for each verb what is written to the store, and that invalid
// requests write nothing and return an error.
func TestAllVerbsReturnResults(t *testing.T) {
	fixture := newFixture(t)
	server := &store{}
	cache := fixture.newLoadedCache(t, server)
	client := &internalclient.Client{Doer: fixture.newServer(server, cache, cache)}
	ctx := t.Context()
	existing := configs.Named("m")
	configMap := func(name, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"text": value}}
	}
	applied := configMap("m", "applied")
	applied.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	other := types.UID("other")
	var out corev1.ConfigMap
	for name, test := range map[string]struct {
		do                   func() error
		wantCalls, wantValue string
		isWant               func(error) bool
	}{
		"create": {
			do:        func() error { return client.Create(ctx, configs, configMap("n", "created")) },
			wantCalls: "create n",
			wantValue: "created",
			isWant:    isNil,
		},
		"update": {
			do:        func() error { return client.Update(ctx, existing, configMap("m", "updated"), nil) },
			wantCalls: "update m",
			wantValue: "updated",
			isWant:    isNil,
		},
		"update returns the new object": {
			do:        func() error { return client.Update(ctx, existing, configMap("m", "returned"), &out) },
			wantCalls: "update m",
			wantValue: "returned",
			isWant:    isNil,
		},
		"patch": {
			do: func() error {
				return client.Patch(ctx, existing, map[string]any{"data": map[string]any{"text": "patched"}})
			},
			wantCalls: "update m",
			wantValue: "patched",
			isWant:    isNil,
		},
		"apply":  {do: func() error { return client.Apply(ctx, existing, applied) }, wantCalls: "update m", wantValue: "applied", isWant: isNil},
		"delete": {do: func() error { return client.Delete(ctx, existing, nil) }, wantCalls: "delete m", isWant: isNil},
		"delete with the uid of another object": {
			do: func() error {
				return client.Delete(ctx, existing, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
			},
			isWant: apierrors.IsConflict,
		},
		"object that cannot be encoded": {do: func() error { return client.Create(ctx, configs, make(chan int)) }, isWant: isError},
		"patch that is no object":       {do: func() error { return client.Patch(ctx, existing, "text") }, isWant: isError},
		"another kind":                  {do: func() error { return client.Create(ctx, configs, newSecret()) }, isWant: isError},
	} {
		server.calls = nil
		server.last = nil
		if err := test.do(); !test.isWant(err) {
			t.Errorf("%s: got error %v, want another kind of error", name, err)
		}
		if strings.Join(server.calls, ", ") != test.wantCalls || !strings.Contains(string(server.last), test.wantValue) {
			t.Errorf("%s: got writes %q, value %q, want %q, a value with %q", name, server.calls, server.last, test.wantCalls, test.wantValue)
		}
	}
	if out.Data["text"] != "returned" || out.ResourceVersion != "6" {
		t.Errorf("got result %v, want the value returned at version 6", out)
	}
}

func isError(err error) bool { return err != nil }

// newSecret returns an object of another kind than ConfigMap.
func newSecret() *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n"},
	}
}

// startupRecorder records for each write whether admission skips webhooks and policies.
type startupRecorder []bool

func (s *startupRecorder) Validate(ctx context.Context, _ *admission.Request) error {
	*s = append(*s, request.FromContext(ctx).Startup)
	return nil
}

// TestOnlyStartupWritesSkipWebhooks checks that other internal writes call webhooks and policies.
func TestOnlyStartupWritesSkipWebhooks(t *testing.T) {
	fixture := newFixture(t)
	var skipped startupRecorder
	fixture.plugins = []admission.Plugin{{Name: "recorder", Plugin: &skipped}}
	s := &store{}
	cache := fixture.newLoadedCache(t, s)
	client := &internalclient.Client{Doer: fixture.newServer(s, cache, cache)}
	for _, ctx := range []context.Context{t.Context(), requesttest.WithStartup(t.Context())} {
		_ = client.Create(ctx, configs, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: "n"},
		})
	}
	if !slices.Equal(skipped, startupRecorder{false, true}) {
		t.Errorf("ordinary write, startup write: got webhooks skipped %v, want false, true", skipped)
	}
}

// TestInternalListSelects checks that lists select objects by namespace and labels, and that cached
// reads find existing objects only.
func TestInternalListSelects(t *testing.T) {
	fixture := newFixture(t)
	s := &store{}
	cache := fixture.newLoadedCache(t, s)
	client := &internalclient.Client{Doer: fixture.newServer(s, cache, cache)}
	everywhere := internalclient.Collection("", "v1", "configmaps", "")
	elsewhere := internalclient.Collection("", "v1", "configmaps", "n")
	for _, test := range []struct {
		ref    internalclient.Ref
		labels map[string]string
		want   []string
	}{
		{ref: configs, want: []string{"m"}},
		{ref: everywhere, want: []string{"m"}},
		{ref: elsewhere},
		{ref: configs, labels: map[string]string{"app": "a"}, want: []string{"m"}},
		{ref: configs, labels: map[string]string{"app": "b"}},
	} {
		var list corev1.ConfigMapList
		err := client.List(t.Context(), test.ref, test.labels, &list)
		var names []string
		for _, m := range list.Items {
			names = append(names, m.Name)
		}
		if err != nil || !slices.Equal(names, test.want) {
			t.Errorf("%s with labels %v: got %v, %v, want %v", test.ref, test.labels, names, err, test.want)
		}
	}
	for name, isWant := range map[string]func(error) bool{"m": isNil, "none": apierrors.IsNotFound} {
		for _, out := range []any{nil, &corev1.ConfigMap{}} {
			if err := client.GetCached(t.Context(), configs.Named(name), out); !isWant(err) {
				t.Errorf("get of %s: got error %v, want another kind of error", name, err)
			}
		}
	}
}

// TestCorruptValueFailsReads checks that a get and a list of a corrupt object fail: a list never omits
// it silently.
func TestCorruptValueFailsReads(t *testing.T) {
	fixture := newFixture(t)
	good := fixture.value
	good.Key += "2"
	fixture.value.Value = []byte("{")
	s := &store{more: []storage.KeyValue{good}}
	cache := fixture.newLoadedCache(t, s)
	client := &internalclient.Client{Doer: fixture.newServer(s, cache, cache)}
	var list corev1.ConfigMapList
	isInternalError := func(err error) bool {
		return apierrors.IsInternalError(err) && !strings.Contains(err.Error(), "panic")
	}
	if err := client.List(t.Context(), configs, nil, &list); !isInternalError(err) {
		t.Errorf("list: got %v, error %v, want an internal error that is no panic", list.Items, err)
	}
	if err := client.Get(t.Context(), configs.Named("m"), &corev1.ConfigMap{}); !isInternalError(err) {
		t.Errorf("get: got error %v, want an internal error that is no panic", err)
	}
}
