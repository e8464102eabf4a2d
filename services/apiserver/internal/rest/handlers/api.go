package handlers

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/limit"
	"binnacle/libs/serving/metrics"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/proxy/reverseproxy"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/componentstatus"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/workers"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// Config holds the dependencies and options of the API.
type Config struct {
	// Kinds holds all kinds that the server stores, including those that clients cannot access.
	Kinds *apiset.Live
	responsewriters.Responses
	Store storage.Interface
	// Root is the prefix of all keys. Spans omit it.
	Root string
	// Writer executes all writes.
	Writer *writes.Writer
	// Operations serve subresources and kinds that are not plain reads or writes of stored objects.
	Operations []Operation
	// Components are the components of the control plane, in list order.
	Components []componentstatus.Component
	// MinRequestTimeout is the minimum timeout of watches that set none. Their timeout is random,
	// at most twice as long.
	MinRequestTimeout time.Duration
	// BookmarkInterval is the time between bookmarks of a watch.
	BookmarkInterval time.Duration
	// DeleteCollectionWorkers is how many objects of a collection are deleted in parallel; 0 counts
	// as 1.
	DeleteCollectionWorkers int
	// CorruptObjects is the policy for reporting corrupt objects. If it names objects, clients
	// may delete them with ignoreStoreReadErrorWithClusterBreakingPotential; otherwise that option
	// is ignored.
	CorruptObjects status.CorruptObjects
	// WatchList allows sendInitialEvents.
	WatchList bool
	// NoCache makes reads with resourceVersion=0 return the most recent objects, too.
	NoCache bool
	// Stopping is canceled when long-running requests must end.
	Stopping context.Context
	// ProxyLimit, if set, limits the requests that are proxied to other servers.
	ProxyLimit *reverseproxy.Limit
	Logger     *slog.Logger
	Metrics    *Metrics
}

// API serves requests below /api/<version> and /apis/<group>/<version>.
type API struct {
	Config
	operations     map[operationKey]*Operation
	workers        workers.Pool  // of pumps
	selectorMemory selectorLimit // of watches
}

// resource is a served kind with everything that its handlers need.
type resource = apiset.Resource

// New returns the API.
func New(config Config) *API {
	a := &API{Config: config, operations: map[operationKey]*Operation{}, selectorMemory: newSelectorLimit()}
	for i := range config.Operations {
		operation := &config.Operations[i]
		a.operations[operationKey{operation.Resource, operation.Subresource}] = operation
	}
	return a
}

// Call is a request in its handler, with the resource that it is about.
type Call struct {
	*resource
	W    http.ResponseWriter
	R    *http.Request
	Info *requestinfo.Info
	Sub  *registry.Subresource

	api *API
}

// Context returns the context of the request.
func (c *Call) Context() context.Context { return c.R.Context() }

// objectKey returns the key of the object in the path.
func (c *Call) objectKey() string { return c.resource.Key(c.Info.Namespace, c.Info.Name) }

// objectRef returns the reference that messages use for the object in the path.
func (c *Call) objectRef() status.Ref { return refOf(c.Kind, c.Info.Name) }

// refOf returns the reference that messages use for an object of a kind.
func refOf(kind *registry.Kind, name string) status.Ref {
	return status.Ref{Resource: kind.GroupResource(), Name: name}
}

// storedResource returns a resource that the server stores, or nil.
func (a *API) storedResource(gvr schema.GroupVersionResource) *resource {
	return a.Kinds.Current().Resource(gvr)
}

// writeError writes an error, unless the client has disconnected.
func (a *API) writeError(w http.ResponseWriter, r *http.Request, err error) {
	// A body that does not arrive in time also cancels the request's context.
	if errors.Is(context.Cause(r.Context()), context.Canceled) && status.FromError(err).Code != http.StatusRequestTimeout {
		err = status.Gone()
	}
	if reported := status.FromError(err); reported.Code == http.StatusInternalServerError && r.Context().Err() == nil {
		a.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	a.Error(w, r, err)
}

// allowsCreate reports whether the path is a collection that objects can be added to. The collection
// of all namespaces is not, unless the path has an empty namespace segment.
func (c *Call) allowsCreate() bool {
	return c.Info.Collection && (!c.Namespaced || c.Info.Namespace != "" || c.Info.EmptyNamespace)
}

// handler serves one operation of a call.
type handler func(*Call) error

// Operation serves a kind that stores nothing, or a subresource that is not a view of its object.
// Packages below subresources implement them; package build lists them.
type Operation struct {
	// Resource is the resource. Subresource is empty for the kind itself.
	Resource    schema.GroupResource
	Subresource string
	// Methods are the HTTP methods of a connect subresource. All other operations use POST.
	Methods []string
	Serve   func(*Call) error
}

// operationKey identifies an Operation. subresource is empty for the kind itself.
type operationKey struct {
	resource    schema.GroupResource
	subresource string
}

const (
	// MaxSelectorBytes bounds the memory in bytes of the large selectors of all watches.
	MaxSelectorBytes = 64 << 20
	// smallSelectors is the memory in bytes below which selectors are not
	// limited. It is about the memory of a watch without selectors.
	smallSelectors = 16 << 10
	// requirementBytes is the memory of a requirement in bytes. selectorFactor is
	// the memory of its values in bytes per byte of text.
	requirementBytes = 256
	selectorFactor   = 10
)

// selectorLimit limits the memory of the selectors of watches.
type selectorLimit struct{ bytes *limit.Queue[string] }

func newSelectorLimit() selectorLimit {
	return selectorLimit{limit.New[string](limit.Options{Size: MaxSelectorBytes, FairShare: true})}
}

// reserveMemory reserves memory for the selectors of a watch until release is called.
func (s selectorLimit) reserveMemory(ctx context.Context, label, field string) (release func(), err error) {
	size := selectorFactor*(len(label)+len(field)) + requirementBytes*requestinfo.Requirements(field, label)
	if size < smallSelectors {
		return func() {}, nil
	}
	claim := limit.Claim[string]{Key: request.Principal(ctx), Cost: size}
	if !s.bytes.TryAcquire(claim) {
		return nil, apierrors.NewTooManyRequests("Too many watches with large selectors are in progress, please try again later", 1)
	}
	return func() { s.bytes.Release(claim) }, nil
}

// Metrics holds the metrics of watches and deprecated APIs, mostly named as in Kubernetes.
type Metrics struct {
	watches *metrics.Series[schema.GroupVersionKind, watchMetrics]
	// deliveries measures the time from the cache to the client.
	deliveries prometheus.Histogram
	// deprecated records the requested deprecated kinds.
	deprecated *metrics.Series[deprecatedKey, prometheus.Gauge]
}

// deprecatedKey holds the labels of the metric of deprecated kinds.
type deprecatedKey struct {
	resource             schema.GroupVersionResource
	subresource, removed string
}

func (k deprecatedKey) labelValues() []string {
	return []string{k.resource.Group, k.resource.Version, k.resource.Resource, k.subresource, k.removed}
}

// otherKind is the label of all kinds beyond maxSeries.
var otherKind = schema.GroupVersionKind{Kind: "other"}

// maxSeries is the maximum number of label sets of each metric.
const maxSeries = 5000

// NewMetrics returns registered metrics.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	labels := []string{"group", "version", "kind"}
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_watch_events_total", Help: "[ALPHA] Events sent to watching clients.",
	}, labels)
	sizes := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_watch_events_sizes", Help: "[ALPHA] Sizes of watch events in bytes.",
		Buckets: prometheus.ExponentialBuckets(1024, 2, 8),
	}, labels)
	result := &Metrics{}
	result.deliveries = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "binnacle_watch_delivery_seconds",
		Help:    "Time in seconds from applying a change to the watch cache until it is written to a watching client, for the oldest change of each write.",
		Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	})
	deprecated := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "apiserver_requested_deprecated_apis",
		Help: "[STABLE] Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release.",
	}, []string{"group", "version", "resource", "subresource", "removed_release"})
	result.watches = metrics.NewSeries(metrics.SeriesConfig[schema.GroupVersionKind, watchMetrics]{
		Limit:    maxSeries,
		Overflow: func(schema.GroupVersionKind) schema.GroupVersionKind { return otherKind },
		Add: func(k schema.GroupVersionKind) watchMetrics {
			return watchMetrics{
				events.WithLabelValues(k.Group, k.Version, k.Kind),
				sizes.WithLabelValues(k.Group, k.Version, k.Kind), result.deliveries,
			}
		},
		Remove: func(k schema.GroupVersionKind) {
			events.DeleteLabelValues(k.Group, k.Version, k.Kind)
			sizes.DeleteLabelValues(k.Group, k.Version, k.Kind)
		},
	})
	result.deprecated = metrics.NewSeries(metrics.SeriesConfig[deprecatedKey, prometheus.Gauge]{
		Limit:    maxSeries,
		Overflow: func(deprecatedKey) deprecatedKey { return deprecatedKey{subresource: "other"} },
		Add:      func(k deprecatedKey) prometheus.Gauge { return deprecated.WithLabelValues(k.labelValues()...) },
		Remove:   func(k deprecatedKey) { deprecated.DeleteLabelValues(k.labelValues()...) },
	})
	result.watches.MustRegister(registerer, events, sizes)
	result.deprecated.MustRegister(registerer, deprecated)
	registerer.MustRegister(result.deliveries)
	return result
}

// KeepWhileServed removes the series of resources when they are no longer served.
func (m *Metrics) KeepWhileServed(kinds *apiset.Live) {
	m.watches.KeepWhile(func() func(schema.GroupVersionKind) bool {
		set := kinds.Current()
		return func(k schema.GroupVersionKind) bool { return k == otherKind || set.StoredKind(k) != nil }
	})
	m.deprecated.KeepWhile(func() func(deprecatedKey) bool {
		set := kinds.Current()
		return func(k deprecatedKey) bool { return k.resource.Resource == "" || set.Resource(k.resource) != nil }
	})
}

// recordDeprecated records a request for a deprecated kind.
func (m *Metrics) recordDeprecated(kind *registry.Kind, subresource string) {
	m.deprecated.WithLabels(deprecatedKey{kind.GVR(), subresource, kind.Presentation.RemovedRelease}).Set(1)
}

// watchMetrics holds the metrics of one kind. A watch looks them up once, because a lookup costs more
// than counting.
type watchMetrics struct {
	events prometheus.Counter
	sizes  prometheus.Observer
	waits  prometheus.Observer
}

// watchMetricsOf returns the metrics of watches of a kind.
func (m *Metrics) watchMetricsOf(kind *registry.Kind) watchMetrics {
	return m.watches.WithLabels(kind.GVK())
}

// recordEvent records a sent event and its size in bytes.
func (m watchMetrics) recordEvent(size int) {
	m.events.Inc()
	m.sizes.Observe(float64(size))
}

// recordDelay records the time from the arrival of a change in the cache until it was sent.
func (m watchMetrics) recordDelay(after time.Duration) { m.waits.Observe(after.Seconds()) }
