package policies_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	alphav1 "k8s.io/api/admissionregistration/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/policies"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/storage"
)

// fakeStore is a store with initial values and events that a test sends.
type fakeStore struct {
	initial []storage.KeyValue
	more    chan storage.Batch
	done    chan error
}

func (f *fakeStore) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, page(f.initial)
}

func (f *fakeStore) Follow(ctx context.Context, _ storage.Position, apply func(storage.Batch) error) error {
	for {
		select {
		case b := <-f.more:
			f.done <- apply(b)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (*fakeStore) Progress(context.Context) error                                 { return nil }
func (*fakeStore) VerifyHistory(context.Context, storage.Position) (int64, error) { return 1, nil }

// fixture runs both plugins with a set of policies.
type fixture struct {
	t          testing.TB
	catalog    *registry.Catalog
	metrics    *prometheus.Registry
	programs   *expressions.Programs
	validating *policies.Validating
	mutating   *policies.Mutating
	source     *fakeStore
	stored     func(text string) storage.KeyValue
	revision   int64
}

// put updates an object, or deletes it if there is false.
func (f *fixture) put(text string, exists bool) {
	f.t.Helper()
	f.revision++
	kv := f.stored(text)
	ev := storage.Event{Type: storage.Deleted, Key: kv.Key, Revision: f.revision}
	if exists {
		ev.Type, ev.CreateRevision, ev.Value = storage.Updated, 1, kv.Value
	}
	f.source.more <- storage.Batch{Events: []storage.Event{ev}, Revision: f.revision}
	if err := <-f.source.done; err != nil {
		f.t.Fatal(err)
	}
}

const (
	groupV1    = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"`
	groupAlpha = `{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"`
)

// policy returns a policy that validates config maps and pods. more is added to its spec.
func policy(name, more string) string {
	return groupV1 + `ValidatingAdmissionPolicy","metadata":{"name":"` + name + `"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps","pods","pods/exec","namespaces"]}]},` + more + `}}`
}

// boundPolicy returns a binding with the name of its policy.
func boundPolicy(name, more string) string {
	return groupV1 + `ValidatingAdmissionPolicyBinding","metadata":{"name":"` + name + `"},"spec":{"policyName":"` + name + `",` + more + `}}`
}

const deny = `"validationActions":["Deny"]`

func newFixture(t testing.TB, texts ...string) *fixture {
	t.Helper()
	return newFixtureWith(t, func(*dependencies) {}, texts...)
}

// dependencies are the configuration of the plugins.
type dependencies struct {
	*policies.Config
	policies, bindings *admission.Source
}

// cachedResources returns the resources of all stored kinds.
func cachedResources(catalog *registry.Catalog, c *codec.Codec) []watchcache.ResourceConfig {
	prefixes := map[string]bool{}
	var resources []watchcache.ResourceConfig
	for _, k := range catalog.Kinds() {
		if k.Virtual || prefixes[k.Stored.Prefix] || k.Stored.ToStored != nil {
			continue
		}
		prefixes[k.Stored.Prefix] = true
		coder := c.ForKind(k)
		readAttributes := func(_ string, value []byte) (attributes.Attributes, error) {
			a, err := coder.Attributes(value)
			return attributes.Attributes{Namespace: a.Namespace, Name: a.Name, Labels: attributes.MakeSet(a.Labels)}, err
		}
		resources = append(resources, watchcache.ResourceConfig{
			Name: k.Resource + "." + k.Group, Prefix: apiset.KeyPrefix("/registry", k), Attributes: readAttributes,
		})
	}
	return resources
}

// encodeStored returns an object, given as JSON, as the server stores it.
func encodeStored(t testing.TB, catalog *registry.Catalog, c *codec.Codec, text string) storage.KeyValue {
	t.Helper()
	d, err := c.Decode("application/json", []byte(text), schema.GroupVersionKind{}, nil, false)
	if err != nil {
		t.Fatalf("%s: got %v, want no error", text, err)
	}
	k, o := catalog.Kind(d.GVK), d.Object.(registry.Object)
	if k.Default != nil {
		k.Default(o)
	}
	value, err := c.ForKind(k).EncodeStored(o)
	if err != nil {
		t.Fatal(err)
	}
	key := apiset.KeyPrefix("/registry", k) + o.GetName()
	if k.Namespaced {
		key = apiset.KeyPrefix("/registry", k) + o.GetNamespace() + "/" + o.GetName()
	}
	return storage.KeyValue{Key: key, Value: value, ModRevision: 1, CreateRevision: 1}
}

// runCache runs a watch cache of a store until the test ends, and waits until it is ready.
func runCache(t testing.TB, store *fakeStore, resources []watchcache.ResourceConfig) *watchcache.Cache {
	t.Helper()
	cache, err := watchcache.New(watchcache.Config{Source: store, CurrentRevision: store, Resources: resources})
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
	return cache
}

// newFixtureWith returns a fixture like newFixture, with changed dependencies.
func newFixtureWith(t testing.TB, change func(*dependencies), texts ...string) *fixture {
	t.Helper()
	catalog, err := builtin.Everything(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	store := &fakeStore{more: make(chan storage.Batch), done: make(chan error)}
	stored := func(text string) storage.KeyValue {
		t.Helper()
		return encodeStored(t, catalog, c, text)
	}
	for _, text := range texts {
		store.initial = append(store.initial, stored(text))
	}
	cache := runCache(t, store, cachedResources(catalog, c))
	fields := apply.New(catalog, time.Now)
	set := apiset.Builder{Codec: c, Cache: cache, Root: "/registry", Fields: fields}.Set(catalog, 0)
	compiler, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{
		t: t, source: store, stored: stored, revision: 1, catalog: catalog, metrics: prometheus.NewRegistry(),
		programs: expressions.NewPrograms(compiler),
	}
	params, err := policies.NewParameters(set.StoredKind, func(context.Context, *apiset.Resource) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	config := func(sort policies.PolicyType) policies.Config {
		return policies.Config{
			Ready:      cache.Ready,
			Namespaces: namespaces{},
			Authorizer: denyAll{},
			Family:     func(k *registry.Kind) []*apiset.Resource { return []*apiset.Resource{set.Resource(k.GVR())} },
			Namespace: func(_ context.Context, name string) (*corev1.Namespace, error) {
				return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
			},
			Parameters:      params,
			Codec:           c,
			StructEncodings: &views.StructEncodings{},
			Logger:          slog.New(slog.DiscardHandler),
			Metrics:         policies.NewMetrics(f.metrics, sort),
			Programs:        func() (*expressions.Programs, *expressions.Compiler, error) { return f.programs, compiler, nil },
			Configure: func(of schema.GroupVersionKind, obj runtime.Object, configuration map[string]any) (map[string]any, error) {
				return fields.Configure(catalog.Kind(of), obj, configuration)
			},
		}
	}
	source := func(gvr schema.GroupVersionResource) admission.Source {
		r := set.Resource(gvr)
		return admission.Source{
			Store:         r.Store,
			WaitForWrites: func(context.Context) error { return nil },
			Decode:        func(e *objects.Entry) (metav1.Object, error) { return r.Coder.DecodeStored(e.Stored(), e.Revision) },
		}
	}
	v1, alpha := admissionv1.SchemeGroupVersion, alphav1.SchemeGroupVersion
	changed := func(sort policies.PolicyType, version schema.GroupVersion, name string) (policies.Config, admission.Source, admission.Source) {
		c := config(sort)
		of := source(version.WithResource(name + "policies"))
		bound := source(version.WithResource(name + "policybindings"))
		change(&dependencies{&c, &of, &bound})
		return c, of, bound
	}
	f.validating = policies.NewValidating(changed(policies.SortValidating, v1, "validatingadmission"))
	f.mutating = policies.NewMutating(changed(policies.SortMutating, alpha, "mutatingadmission"))
	return f
}

// namespaces labels each namespace with its name.
type namespaces struct{}

func (namespaces) Labels(_ context.Context, name string) (map[string]string, error) {
	return map[string]string{"kubernetes.io/metadata.name": name}, nil
}

// denyAll is an authorizer that denies every request.
type denyAll struct{}

func (denyAll) Authorize(context.Context, *authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.Deny, "", nil
}

// request returns a request to create an object of the core group.
func (f *fixture) request(resource string, obj runtime.Object) *admission.Request {
	k := f.catalog.Resource(corev1.SchemeGroupVersion.WithResource(resource))
	return &admission.Request{
		Operation: admission.Create, Resource: k, Kind: k.GVK(), Namespace: "default", Name: "x", Object: obj,
		Options: &metav1.CreateOptions{}, User: &authorizer.User{Name: "ada", Groups: []string{"dev"}},
	}
}

func (f *fixture) configMap(data ...string) *admission.Request {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"}}
	for i := 0; i+1 < len(data); i += 2 {
		if m.Data == nil {
			m.Data = map[string]string{}
		}
		m.Data[data[i]] = data[i+1]
	}
	return f.request("configmaps", m)
}

// statusText returns code, reason and message of a rejection, or "".
func statusText(err error) string {
	if err == nil {
		return ""
	}
	s, ok := err.(apierrors.APIStatus)
	if !ok {
		return err.Error()
	}
	return fmt.Sprintf("%d %s %s", s.Status().Code, s.Status().Reason, s.Status().Message)
}

func asJSON(v any) string { b, _ := json.Marshal(v); return string(b) }
