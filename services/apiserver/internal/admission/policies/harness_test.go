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
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

// fakeStore is a store with initial values and batches of events that a test sends.
type fakeStore struct {
	initial []storage.KeyValue
	batches chan storage.Batch
	applied chan error // result of applying each batch
}

func (f *fakeStore) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, page(f.initial)
}

func (f *fakeStore) Follow(ctx context.Context, _ storage.Position, apply func(storage.Batch) error) error {
	for {
		select {
		case b := <-f.batches:
			f.applied <- apply(b)
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
	store      *fakeStore
	encode     func(objectJSON string) storage.KeyValue // the object as the server stores it
	revision   int64                                    // of the last batch that the store sent
}

// put updates a stored object and waits until the cache has applied the update.
func (f *fixture) put(objectJSON string) {
	f.t.Helper()
	stored := f.encode(objectJSON)
	f.send(storage.Event{Type: storage.Updated, Key: stored.Key, CreateRevision: 1, Value: stored.Value})
}

// remove deletes a stored object and waits until the cache has applied the deletion.
func (f *fixture) remove(objectJSON string) {
	f.t.Helper()
	f.send(storage.Event{Type: storage.Deleted, Key: f.encode(objectJSON).Key})
}

// send sends an event at the next revision and waits until the cache has applied it.
func (f *fixture) send(event storage.Event) {
	f.t.Helper()
	f.revision++
	event.Revision = f.revision
	f.store.batches <- storage.Batch{Events: []storage.Event{event}, Revision: f.revision}
	if err := <-f.store.applied; err != nil {
		f.t.Fatalf("apply an event of type %v for %s: got %v, want no error", event.Type, event.Key, err)
	}
}

// Beginnings of objects, up to the name of the kind.
const (
	groupV1    = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"`
	groupAlpha = `{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"`
)

// validatingPolicy returns a validating policy for config maps, pods, pods/exec and namespaces.
// specFields are further fields of its spec.
func validatingPolicy(name, specFields string) string {
	return groupV1 + `ValidatingAdmissionPolicy","metadata":{"name":"` + name + `"},` +
		`"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["v1"],"operations":["*"],` +
		`"resources":["configmaps","pods","pods/exec","namespaces"]}]},` + specFields + `}}`
}

// validatingBinding returns a binding that has the name of its policy. specFields are further
// fields of its spec.
func validatingBinding(name, specFields string) string {
	return groupV1 + `ValidatingAdmissionPolicyBinding","metadata":{"name":"` + name + `"},` +
		`"spec":{"policyName":"` + name + `",` + specFields + `}}`
}

// deny is the field of a binding's spec by which failed validations reject the request.
const deny = `"validationActions":["Deny"]`

// newFixture returns a fixture with stored objects, which are given as JSON.
func newFixture(t testing.TB, storedJSON ...string) *fixture {
	t.Helper()
	return newFixtureWith(t, func(*dependencies) {}, storedJSON...)
}

// dependencies are the arguments of a plugin's constructor. Tests change them.
type dependencies struct {
	*policies.Config
	policies, bindings *admission.Source
}

// cachedResources returns the watch cache configuration of all kinds that are stored as they are.
func cachedResources(catalog *registry.Catalog, objectCodec *codec.Codec) []watchcache.ResourceConfig {
	prefixes := map[string]bool{}
	var resources []watchcache.ResourceConfig
	for _, kind := range catalog.Kinds() {
		if kind.Virtual || prefixes[kind.Stored.Prefix] || kind.Stored.ToStored != nil {
			continue
		}
		prefixes[kind.Stored.Prefix] = true
		coder := objectCodec.ForKind(kind)
		readAttributes := func(_ string, value []byte) (attributes.Attributes, error) {
			a, err := coder.Attributes(value)
			return attributes.Attributes{Namespace: a.Namespace, Name: a.Name, Labels: attributes.SetFromPairs(a.Labels)}, err
		}
		resources = append(resources, watchcache.ResourceConfig{
			Name: kind.Resource + "." + kind.Group, Prefix: apiset.KeyPrefix("/registry", kind), Attributes: readAttributes,
		})
	}
	return resources
}

// encodeStored returns an object, given as JSON, as the server stores it.
func encodeStored(t testing.TB, catalog *registry.Catalog, objectCodec *codec.Codec, objectJSON string) storage.KeyValue {
	t.Helper()
	const isStrict = false
	decoded, err := objectCodec.Decode("application/json", []byte(objectJSON), schema.GroupVersionKind{}, nil, isStrict)
	if err != nil {
		t.Fatalf("decode %s: got %v, want no error", objectJSON, err)
	}
	kind, obj := catalog.Kind(decoded.GVK), decoded.Object.(registry.Object)
	if kind.Default != nil {
		kind.Default(obj)
	}
	value, err := objectCodec.ForKind(kind).EncodeStored(obj)
	if err != nil {
		t.Fatalf("encode %s: got %v, want no error", objectJSON, err)
	}
	key := apiset.KeyPrefix("/registry", kind) + obj.GetName()
	if kind.Namespaced {
		key = apiset.KeyPrefix("/registry", kind) + obj.GetNamespace() + "/" + obj.GetName()
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

// newFixtureWith returns a fixture with stored objects, which are given as JSON. It calls change for
// the dependencies of the validating and of the mutating plugin.
func newFixtureWith(t testing.TB, change func(*dependencies), storedJSON ...string) *fixture {
	t.Helper()

	// 1. Fill a store with the objects and run a cache of it.
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	objectCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	store := &fakeStore{batches: make(chan storage.Batch), applied: make(chan error)}
	encode := func(objectJSON string) storage.KeyValue {
		t.Helper()
		return encodeStored(t, catalog, objectCodec, objectJSON)
	}
	for _, objectJSON := range storedJSON {
		store.initial = append(store.initial, encode(objectJSON))
	}
	cache := runCache(t, store, cachedResources(catalog, objectCodec))

	// 2. Create what both plugins share.
	fields := apply.New(catalog, time.Now)
	set := apiset.Builder{Codec: objectCodec, Cache: cache, Root: "/registry", Fields: fields}.Set(catalog, 0)
	compiler, err := expressions.New()
	if err != nil {
		t.Fatal(err)
	}
	out := &fixture{
		t: t, store: store, encode: encode, revision: 1, catalog: catalog, metrics: prometheus.NewRegistry(),
		programs: expressions.NewPrograms(compiler),
	}
	params, err := policies.NewParameters(set.StoredKind, func(context.Context, *apiset.Resource) error { return nil })
	if err != nil {
		t.Fatal(err)
	}

	// 3. Create the plugins from the changed dependencies.
	config := func(policyType policies.PolicyType) policies.Config {
		return policies.Config{
			Ready:      cache.Ready,
			Namespaces: namespaces{},
			Authorizer: denyAll{},
			Family:     func(k *registry.Kind) []*apiset.Resource { return []*apiset.Resource{set.Resource(k.GVR())} },
			Namespace: func(_ context.Context, name string) (*corev1.Namespace, error) {
				return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
			},
			Parameters:      params,
			Codec:           objectCodec,
			StructEncodings: &views.StructEncodings{},
			Logger:          slog.New(slog.DiscardHandler),
			Metrics:         policies.NewMetrics(out.metrics, policyType),
			Programs:        func() (*expressions.Programs, *expressions.Compiler, error) { return out.programs, compiler, nil },
			Configure: func(gvk schema.GroupVersionKind, obj runtime.Object, configuration map[string]any) (map[string]any, error) {
				return fields.Configure(catalog.Kind(gvk), obj, configuration)
			},
		}
	}
	source := func(gvr schema.GroupVersionResource) admission.Source {
		resource := set.Resource(gvr)
		return admission.Source{
			Store:         resource.Store,
			WaitForWrites: func(context.Context) error { return nil },
			Decode: func(e *objects.Entry) (metav1.Object, error) {
				return resource.Coder.DecodeStored(e.Stored(), e.Revision)
			},
		}
	}
	changed := func(
		policyType policies.PolicyType,
		policyResource, bindingResource schema.GroupVersionResource,
	) (policies.Config, admission.Source, admission.Source) {
		pluginConfig, policySource, bindingSource := config(policyType), source(policyResource), source(bindingResource)
		change(&dependencies{&pluginConfig, &policySource, &bindingSource})
		return pluginConfig, policySource, bindingSource
	}
	out.validating = policies.NewValidating(changed(
		policies.ValidatingPolicies,
		admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"),
		admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings"),
	))
	out.mutating = policies.NewMutating(changed(
		policies.MutatingPolicies,
		alphav1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies"),
		alphav1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings"),
	))
	return out
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

// request returns ada's request to create an object of the core group, with the name x in the
// namespace default.
func (f *fixture) request(resource string, obj runtime.Object) *admission.Request {
	k := f.catalog.Resource(corev1.SchemeGroupVersion.WithResource(resource))
	return &admission.Request{
		Operation: admission.Create, Resource: k, Kind: k.GVK(), Namespace: "default", Name: "x", Object: obj,
		Options: &metav1.CreateOptions{}, User: &authorizer.User{Name: "ada", Groups: []string{"dev"}},
	}
}

// configMap returns a request to create a config map. data are its keys, each with its value.
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
	apiStatus, ok := err.(apierrors.APIStatus)
	if !ok {
		return err.Error()
	}
	return fmt.Sprintf("%d %s %s", apiStatus.Status().Code, apiStatus.Status().Reason, apiStatus.Status().Message)
}

func asJSON(v any) string { b, _ := json.Marshal(v); return string(b) }
