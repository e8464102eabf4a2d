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

// store holds fixed values and only records writes. Confirm and writes return the configured
// errors.
type store struct {
	storage.Interface // nil; unused methods

	value     storage.KeyValue
	more      []storage.KeyValue // after it
	confirmed error
	written   error
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
	return s.value.ModRevision, s.confirmed
}

func (s *store) Get(_ context.Context, key string, _ int64) (storage.KeyValue, int64, error) {
	if key != s.value.Key {
		return storage.KeyValue{}, s.value.ModRevision, storage.ErrNotFound
	}
	return s.value, s.value.ModRevision, nil
}

// next is the revision of all writes.
const next = 6

func (s *store) recordWrite(what, key string, value []byte) (int64, error) {
	s.calls = append(s.calls, what+" "+key[strings.LastIndex(key, "/")+1:])
	s.last = value
	return next, s.written
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
	w := &fixture{catalog: catalog}
	if w.codec, err = codec.New(catalog, builtin.Scheme()); err != nil {
		t.Fatal(err)
	}
	for _, k := range catalog.Kinds() {
		if k.GVR() == configs.GroupVersionResource {
			w.kind = k
		}
	}
	value, err := w.codec.ForKind(w.kind).EncodeStored(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "uid", Labels: map[string]string{"app": "a"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.value = storage.KeyValue{Key: apiset.KeyPrefix("/registry", w.kind) + "ns/m", Value: value, ModRevision: 5, CreateRevision: 5}
	return w
}

// newCache returns a cache of ConfigMaps, which is loaded or not.
func (w *fixture) newCache(t *testing.T, s *store, loaded bool) *watchcache.Cache {
	t.Helper()
	s.value = w.value
	coder := w.codec.ForKind(w.kind)
	cache, err := watchcache.New(watchcache.Config{
		Source:          s,
		CurrentRevision: s,
		ConfirmEvery:    time.Hour,
		Resources: []watchcache.ResourceConfig{{
			Name: "configmaps", Prefix: apiset.KeyPrefix("/registry", w.kind),
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

// newServer returns a server whose ConfigMaps have their own cache.
func (w *fixture) newServer(s *store, cache, own *watchcache.Cache) *internalclient.Server {
	fields := apply.New(w.catalog, time.Now)
	writer := writes.New(writes.Config{
		Codec:     w.codec,
		Fields:    fields,
		Store:     s,
		Admission: admission.NewChain(nil, w.plugins...),
		Now:       time.Now,
		Logger:    slog.New(slog.DiscardHandler),
	})
	return &internalclient.Server{
		Kinds:  apiset.NewLive(apiset.Builder{Codec: w.codec, Cache: own, Root: "/registry", Fields: fields}.Set(w.catalog, 1)),
		Cache:  cache,
		Codec:  w.codec,
		Writer: func() *writes.Writer { return writer },
		Logger: slog.New(slog.DiscardHandler),
	}
}

// TestInternalReadsAreCurrentOrFail checks that reads never return an old state silently, and fail
// with 429 while a cache reloads.
func TestInternalReadsAreCurrentOrFail(t *testing.T) {
	w := newFixture(t)
	for name, c := range map[string]struct {
		loaded, own bool
		confirmed   error
		newest      func(error) bool
		known       func(error) bool
	}{
		"caches of both kinds are loaded":      {loaded: true, own: true, newest: isNil, known: isNil},
		"the cache is loaded":                  {own: true, newest: apierrors.IsTooManyRequests, known: apierrors.IsTooManyRequests},
		"only the cache of the kind is loaded": {loaded: true, newest: apierrors.IsTooManyRequests, known: apierrors.IsTooManyRequests},
		"the store is unavailable": {
			loaded:    true,
			own:       true,
			confirmed: storage.ErrUnavailable,
			newest:    apierrors.IsInternalError,
			known:     isNil,
		},
		"the store is too slow": {
			loaded:    true,
			own:       true,
			confirmed: context.DeadlineExceeded,
			newest:    apierrors.IsTimeout,
			known:     isNil,
		},
	} {
		s := &store{confirmed: c.confirmed}
		client := &internalclient.Client{Doer: w.newServer(s, w.newCache(t, s, c.loaded), w.newCache(t, s, c.own))}
		for what, do := range map[string]func(any) error{
			"get":  func(out any) error { return client.Get(t.Context(), configs.Named("m"), out) },
			"list": func(out any) error { return client.List(t.Context(), configs, nil, out) },
		} {
			if err := do(&map[string]any{}); !c.newest(err) {
				t.Errorf("%s, %s of the current state: got error %v, want another", name, what, err)
			}
		}
		for what, do := range map[string]func(any) error{
			"get":  func(out any) error { return client.GetCached(t.Context(), configs.Named("m"), out) },
			"list": func(out any) error { return client.ListCached(t.Context(), configs, nil, out) },
		} {
			if err := do(&map[string]any{}); !c.known(err) {
				t.Errorf("%s, %s of the cached state: got error %v, want another", name, what, err)
			}
		}
	}
	// The read itself detects that the store was replaced.
	s := &store{confirmed: &storage.ReplacedError{}}
	cache := w.newCache(t, s, true)
	client := &internalclient.Client{Doer: w.newServer(s, cache, cache)}
	if err := client.Get(t.Context(), configs.Named("m"), &corev1.ConfigMap{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("store replaced: got %v", err)
	}
}

func isNil(err error) bool { return err == nil }

// TestWriteErrorsAreRecognizable checks that callers can recognize conflicts and a full store.
func TestWriteErrorsAreRecognizable(t *testing.T) {
	w := newFixture(t)
	s := &store{}
	cache := w.newCache(t, s, true)
	server := w.newServer(s, cache, cache)
	registry := prometheus.NewRegistry()
	server.Metrics = internalclient.NewMetrics(registry)
	client := &internalclient.Client{Doer: server}
	changed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Data: map[string]string{"a": "b"}}
	for name, c := range map[string]struct {
		failure error
		is      func(error) bool
	}{
		"changed by another": {failure: &storage.PreconditionError{}, is: apierrors.IsConflict},
		"the store is full":  {failure: storage.ErrFull, is: func(err error) bool { return errors.Is(err, storage.ErrFull) }},
		"gone": {failure: storage.ErrUnavailable,
			is: func(err error) bool { return apierrors.IsInternalError(err) && !errors.Is(err, storage.ErrFull) }},
	} {
		s.written = c.failure
		for _, out := range []any{nil, &corev1.ConfigMap{}} {
			if err := client.Update(t.Context(), configs.Named("m"), changed.DeepCopy(), out); !c.is(err) {
				t.Errorf("%s: %v", name, err)
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
		of := ""
		for _, l := range m.GetLabel() {
			of += l.GetName() + "=" + l.GetValue() + " "
		}
		counted[of] = m.GetCounter().GetValue()
	}
	if len(counted) != 2 || counted["resource=configmaps subresource= verb=PUT "] != 6 ||
		counted["resource=configmaps subresource= verb=GET "] != 1 {
		t.Errorf("got counters %v, want 6 PUT and 1 GET of configmaps", counted)
	}
}

// TestAllVerbsReturnResults covers all verbs, with and without a result.
func TestAllVerbsReturnResults(t *testing.T) {
	w := newFixture(t)
	s := &store{}
	cache := w.newCache(t, s, true)
	client := &internalclient.Client{Doer: w.newServer(s, cache, cache)}
	ctx := t.Context()
	m := configs.Named("m")
	sent := func(name, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"said": value}}
	}
	applied := sent("m", "applied")
	applied.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	other := types.UID("other")
	var out corev1.ConfigMap
	for name, c := range map[string]struct {
		do                   func() error
		wantCalls, wantValue string
		is                   func(error) bool
	}{
		"create": {
			do:        func() error { return client.Create(ctx, configs, sent("n", "created")) },
			wantCalls: "create n",
			wantValue: "created",
			is:        isNil,
		},
		"update": {
			do:        func() error { return client.Update(ctx, m, sent("m", "updated"), nil) },
			wantCalls: "update m",
			wantValue: "updated",
			is:        isNil,
		},
		"update returns the new object": {
			do:        func() error { return client.Update(ctx, m, sent("m", "seen"), &out) },
			wantCalls: "update m",
			wantValue: "seen",
			is:        isNil,
		},
		"patch": {
			do:        func() error { return client.Patch(ctx, m, map[string]any{"data": map[string]any{"said": "patched"}}) },
			wantCalls: "update m",
			wantValue: "patched",
			is:        isNil,
		},
		"apply":  {do: func() error { return client.Apply(ctx, m, applied) }, wantCalls: "update m", wantValue: "applied", is: isNil},
		"delete": {do: func() error { return client.Delete(ctx, m, nil) }, wantCalls: "delete m", is: isNil},
		"delete with the uid of another object": {
			do: func() error {
				return client.Delete(ctx, m, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
			},
			is: apierrors.IsConflict,
		},
		"object that cannot be encoded": {do: func() error { return client.Create(ctx, configs, make(chan int)) }, is: isError},
		"patch that is no object":       {do: func() error { return client.Patch(ctx, m, "text") }, is: isError},
		"another kind":                  {do: func() error { return client.Create(ctx, configs, newSecret()) }, is: isError},
	} {
		s.calls = nil
		s.last = nil
		if err := c.do(); !c.is(err) || strings.Join(s.calls, ", ") != c.wantCalls || !strings.Contains(string(s.last), c.wantValue) {
			t.Errorf("%s: got error %v, calls %q, value %q, want calls %q, value with %q",
				name, err, s.calls, s.last, c.wantCalls, c.wantValue)
		}
	}
	if out.Data["said"] != "seen" || out.ResourceVersion != "6" {
		t.Errorf("got result %v, want the value seen at version 6", out)
	}
}

func isError(err error) bool { return err != nil }

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
	w := newFixture(t)
	var seen startupRecorder
	w.plugins = []admission.Plugin{{Name: "recorder", Plugin: &seen}}
	s := &store{}
	cache := w.newCache(t, s, true)
	client := &internalclient.Client{Doer: w.newServer(s, cache, cache)}
	for _, ctx := range []context.Context{t.Context(), requesttest.WithStartup(t.Context())} {
		_ = client.Create(ctx, configs, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: "n"},
		})
	}
	if !slices.Equal(seen, startupRecorder{false, true}) {
		t.Errorf("got %v, want false, true", seen)
	}
}

// TestInternalListSelects checks namespaces and labels.
func TestInternalListSelects(t *testing.T) {
	w := newFixture(t)
	s := &store{}
	cache := w.newCache(t, s, true)
	client := &internalclient.Client{Doer: w.newServer(s, cache, cache)}
	everywhere := internalclient.Collection("", "v1", "configmaps", "")
	elsewhere := internalclient.Collection("", "v1", "configmaps", "n")
	for _, c := range []struct {
		at     internalclient.Ref
		labels map[string]string
		want   []string
	}{
		{at: configs, want: []string{"m"}},
		{at: everywhere, want: []string{"m"}},
		{at: elsewhere},
		{at: configs, labels: map[string]string{"app": "a"}, want: []string{"m"}},
		{at: configs, labels: map[string]string{"app": "b"}},
	} {
		var list corev1.ConfigMapList
		err := client.List(t.Context(), c.at, c.labels, &list)
		var names []string
		for _, m := range list.Items {
			names = append(names, m.Name)
		}
		if err != nil || !slices.Equal(names, c.want) {
			t.Errorf("%s with labels %v: got %v, %v, want %v", c.at, c.labels, names, err, c.want)
		}
	}
	for name, is := range map[string]func(error) bool{"m": isNil, "none": apierrors.IsNotFound} {
		for _, out := range []any{nil, &corev1.ConfigMap{}} {
			if err := client.GetCached(t.Context(), configs.Named(name), out); !is(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestCorruptValueFailsReads checks that a list never omits a corrupt object silently.
func TestCorruptValueFailsReads(t *testing.T) {
	w := newFixture(t)
	good := w.value
	good.Key += "2"
	w.value.Value = []byte("{")
	s := &store{more: []storage.KeyValue{good}}
	cache := w.newCache(t, s, true)
	client := &internalclient.Client{Doer: w.newServer(s, cache, cache)}
	var list corev1.ConfigMapList
	if err := client.List(
		t.Context(),
		configs,
		nil,
		&list,
	); !apierrors.IsInternalError(err) || strings.Contains(err.Error(), "panic") {
		t.Errorf("list: got %v, %v, want an internal error that hides the panic", list.Items, err)
	}
	if err := client.Get(t.Context(), configs.Named("m"), &corev1.ConfigMap{}); !apierrors.IsInternalError(err) ||
		strings.Contains(err.Error(), "panic") {
		t.Errorf("get: got %v", err)
	}
}
