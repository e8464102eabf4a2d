package webhooks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/admission/webhooks"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/storage"
)

// eventFeed is a storage source with initial values and events from a test.
type eventFeed struct {
	initial []storage.KeyValue
	batches chan storage.Batch
	applied chan error // result of applying each batch
}

func (f *eventFeed) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, page(f.initial)
}

func (f *eventFeed) Follow(ctx context.Context, _ storage.Position, apply func(storage.Batch) error) error {
	for {
		select {
		case b := <-f.batches:
			f.applied <- apply(b)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (*eventFeed) Progress(context.Context) error { return nil }

func (*eventFeed) VerifyHistory(context.Context, storage.Position) (int64, error) { return 1, nil }

// prefix begins the keys of the stored webhook configurations.
const prefix = "/registry/hooks/"

// safeBuffer is a log that several goroutines may write to.
type safeBuffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	panicOn string // Write panics if a line contains it; "" for never
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.panicOn != "" && bytes.Contains(p, []byte(s.panicOn)) {
		panic(s.panicOn)
	}
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// fixture is an admission chain with the validating or the mutating webhook plugin.
type fixture struct {
	t        testing.TB
	chain    *admission.Chain
	catalog  *registry.Catalog
	codec    *codec.Codec
	notices  chan webhooks.ReachabilityEvent
	registry *prometheus.Registry
	log      *safeBuffer
	source   *eventFeed
	stored   map[string]bool // names of the stored configurations
	revision int64           // of the last batch that the source sent
}

// put creates or updates a stored configuration and waits until the cache has applied the write.
func (f *fixture) put(name string, value []byte) {
	f.t.Helper()
	event := storage.Event{Type: storage.Updated, Key: prefix + name, CreateRevision: 1, Value: value}
	if !f.stored[name] {
		event.Type, event.CreateRevision = storage.Created, f.revision+1
	}
	f.stored[name] = true
	f.send(event)
}

// remove deletes a stored configuration and waits until the cache has applied the deletion.
func (f *fixture) remove(name string) {
	f.t.Helper()
	f.stored[name] = false
	f.send(storage.Event{Type: storage.Deleted, Key: prefix + name})
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

// namespaces has no labels for any namespace.
type namespaces struct{}

func (namespaces) Labels(context.Context, string) (map[string]string, error) { return nil, nil }

// start starts a plugin with webhook configurations of one kind.
func start[C metav1.Object](t testing.TB, configurations ...C) *fixture {
	t.Helper()
	return startWith(t, func(*webhooks.Config) {}, configurations...)
}

// startWithCredentials starts a plugin like start. pluginConfiguration is the file that names the
// kubeconfig of the webhooks.
func startWithCredentials[C metav1.Object](t testing.TB, pluginConfiguration []byte, configurations ...C) *fixture {
	t.Helper()
	credentials, err := webhooks.LoadCredentials(pluginConfiguration)
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, func(c *webhooks.Config) { c.Credentials = credentials }, configurations...)
}

// startWith starts a plugin like start, with a Config that change has changed.
func startWith[C metav1.Object](t testing.TB, change func(*webhooks.Config), configurations ...C) *fixture {
	t.Helper()

	// 1. Fill a store with the configurations and run a cache of it.
	source := &eventFeed{batches: make(chan storage.Batch), applied: make(chan error)}
	stored := map[string]bool{}
	isMutating := false
	for _, c := range configurations {
		_, isMutating = any(c).(*admissionregistrationv1.MutatingWebhookConfiguration)
		value, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		stored[c.GetName()] = true
		source.initial = append(source.initial, storage.KeyValue{Key: prefix + c.GetName(), Value: value, ModRevision: 1, CreateRevision: 1})
	}
	cache, err := watchcache.New(watchcache.Config{
		Source:          source,
		CurrentRevision: source,
		Logger:          slog.New(slog.DiscardHandler),
		Resources: []watchcache.ResourceConfig{{
			Name:   "hooks",
			Prefix: prefix,
			Attributes: func(key string, _ []byte) (attributes.Attributes, error) {
				return attributes.Attributes{Name: path.Base(key)}, nil
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = cache.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if err := cache.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}

	// 2. Create the dependencies of the plugin and change them.
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	kindCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	out := &fixture{
		t: t, catalog: catalog, codec: kindCodec, notices: make(chan webhooks.ReachabilityEvent, 16),
		registry: prometheus.NewRegistry(), log: &safeBuffer{}, source: source, stored: stored, revision: 1,
	}
	config := webhooks.Config{
		Responses: webhookclient.NewResponseLimiter(8),
		Configurations: admission.Source{
			Store:         cache.Store(prefix),
			WaitForWrites: func(context.Context) error { return nil },
			Decode: func(e *objects.Entry) (metav1.Object, error) {
				var c C
				return c, json.Unmarshal(e.Stored(), &c)
			},
		},
		Ready: cache.Ready,
		Family: func(k *registry.Kind) []*apiset.Resource {
			return []*apiset.Resource{{Kind: k, Coder: kindCodec.ForKind(k)}}
		},
		Namespaces:      namespaces{},
		Authorizer:      authorizer.Chain{},
		Compiler:        expressions.New,
		Codec:           kindCodec,
		StructEncodings: &views.StructEncodings{},
		Notify:          func(_ context.Context, n webhooks.ReachabilityEvent) { out.notices <- n },
		Metrics:         webhooks.NewMetrics(out.registry),
		Logger:          slog.New(slog.NewTextHandler(out.log, nil)),
	}
	change(&config)

	// 3. Create the plugin for the kind of the configurations.
	var plugin interface{ Close() }
	if isMutating {
		plugin, err = webhooks.NewMutating(config)
	} else {
		plugin, err = webhooks.NewValidating(config)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plugin.Close)
	out.chain = admission.NewChain(nil, admission.Plugin{Name: "hooks", Plugin: plugin})
	return out
}

// request returns a request that creates a ConfigMap.
func (f *fixture) request() *admission.Request {
	kind := f.catalog.Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	return &admission.Request{
		Operation: admission.Create,
		Resource:  kind,
		Kind:      kind.GVK(),
		Namespace: "ns",
		Name:      "c",
		Options:   &metav1.CreateOptions{},
		Object:    &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns"}, Data: map[string]string{"k": "v"}},
	}
}

// metric returns the sum of a metric over all labels.
func (f *fixture) metric(name string) (sum float64) {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// receivedReview is a request to the webhook server.
type receivedReview struct {
	APIVersion, Kind string
	Request          struct {
		UID       string
		Kind      schema.GroupVersionKind
		Operation string
		DryRun    bool
		Object    *corev1.ConfigMap
		OldObject *corev1.ConfigMap
		Options   *metav1.TypeMeta
	}
	path, query, authorization string
}

// webhookServer is an HTTPS server that records the reviews it receives.
type webhookServer struct {
	*httptest.Server
	mu       sync.Mutex
	received []receivedReview
}

// requests returns the received requests, oldest first.
func (s *webhookServer) requests() []receivedReview {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received
}

// forgetRequests drops the requests received so far.
func (s *webhookServer) forgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received = nil
}

// respondAllowed is a response function for serve that allows each request.
func respondAllowed(http.ResponseWriter, receivedReview) string { return `"allowed":true` }

// serve starts a webhook server. respond returns the response field of the AdmissionReview, or
// writes a response itself and returns "".
func serve(t testing.TB, respond func(w http.ResponseWriter, review receivedReview) string) *webhookServer {
	t.Helper()
	server := &webhookServer{}
	server.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := receivedReview{path: r.URL.Path, query: r.URL.RawQuery, authorization: r.Header.Get("Authorization")}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		server.mu.Lock()
		server.received = append(server.received, review)
		server.mu.Unlock()
		if response := respond(w, review); response != "" {
			fmt.Fprintf(w, `{"apiVersion":%q,"kind":"AdmissionReview","response":{"uid":%q,%s}}`, review.APIVersion,
				review.Request.UID, response)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// clientConfig returns the client configuration for a path of the server.
func (s *webhookServer) clientConfig(p string) admissionregistrationv1.WebhookClientConfig {
	url := s.URL + p
	return admissionregistrationv1.WebhookClientConfig{
		URL:      &url,
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
	}
}

// allRules returns rules that match every request.
func allRules() []admissionregistrationv1.RuleWithOperations {
	star := []string{"*"}
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: star, APIVersions: star, Resources: star},
	}}
}

// validatingConfiguration returns a configuration with one webhook, NAME.ex.test, for all requests.
func validatingConfiguration(
	name string,
	clientConfig admissionregistrationv1.WebhookClientConfig,
	changes ...func(*admissionregistrationv1.ValidatingWebhook),
) *admissionregistrationv1.ValidatingWebhookConfiguration {
	none := admissionregistrationv1.SideEffectClassNone
	webhook := admissionregistrationv1.ValidatingWebhook{
		Name:                    name + ".ex.test",
		ClientConfig:            clientConfig,
		Rules:                   allRules(),
		AdmissionReviewVersions: []string{"v1"},
		SideEffects:             &none,
	}
	for _, change := range changes {
		change(&webhook)
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{webhook},
	}
}

// mutatingConfiguration returns a configuration with one webhook, NAME.ex.test, for all requests.
func mutatingConfiguration(
	name string,
	clientConfig admissionregistrationv1.WebhookClientConfig,
	changes ...func(*admissionregistrationv1.MutatingWebhook),
) *admissionregistrationv1.MutatingWebhookConfiguration {
	none := admissionregistrationv1.SideEffectClassNone
	mutatingWebhook := admissionregistrationv1.MutatingWebhook{
		Name:                    name + ".ex.test",
		ClientConfig:            clientConfig,
		Rules:                   allRules(),
		AdmissionReviewVersions: []string{"v1"},
		SideEffects:             &none,
	}
	for _, change := range changes {
		change(&mutatingWebhook)
	}
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{mutatingWebhook},
	}
}

// setData replaces the data of the ConfigMap in a request.
func setData(r *admission.Request, value string) {
	if c, ok := r.Object.(*corev1.ConfigMap); ok {
		c.Data = map[string]string{"k": value}
	}
}
