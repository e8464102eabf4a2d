package handlers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/serving/metrics"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/registry"
)

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
	of                   schema.GroupVersionResource
	subresource, removed string
}

func (k deprecatedKey) labels() []string {
	return []string{k.of.Group, k.of.Version, k.of.Resource, k.subresource, k.removed}
}

// otherKind is the label of all kinds beyond maxSeries.
var otherKind = schema.GroupVersionKind{Kind: "other"}

// maxSeries is the maximum number of label sets of each metric.
const maxSeries = 5000

// NewMetrics returns registered metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	labels := []string{"group", "version", "kind"}
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_watch_events_total", Help: "[ALPHA] Events sent to watching clients.",
	}, labels)
	sizes := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_watch_events_sizes", Help: "[ALPHA] Sizes of watch events in bytes.",
		Buckets: prometheus.ExponentialBuckets(1024, 2, 8),
	}, labels)
	m := &Metrics{}
	m.deliveries = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "binnacle_watch_delivery_seconds",
		Help:    "Time in seconds from applying a change to the watch cache until it is written to a watching client, for the oldest change of each write.",
		Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	})
	deprecated := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "apiserver_requested_deprecated_apis",
		Help: "[STABLE] Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release.",
	}, []string{"group", "version", "resource", "subresource", "removed_release"})
	m.watches = metrics.NewSeries(metrics.SeriesConfig[schema.GroupVersionKind, watchMetrics]{
		Limit:    maxSeries,
		Overflow: func(schema.GroupVersionKind) schema.GroupVersionKind { return otherKind },
		Add: func(k schema.GroupVersionKind) watchMetrics {
			return watchMetrics{
				events.WithLabelValues(k.Group, k.Version, k.Kind),
				sizes.WithLabelValues(k.Group, k.Version, k.Kind), m.deliveries,
			}
		},
		Remove: func(k schema.GroupVersionKind) {
			events.DeleteLabelValues(k.Group, k.Version, k.Kind)
			sizes.DeleteLabelValues(k.Group, k.Version, k.Kind)
		},
	})
	m.deprecated = metrics.NewSeries(metrics.SeriesConfig[deprecatedKey, prometheus.Gauge]{
		Limit:    maxSeries,
		Overflow: func(deprecatedKey) deprecatedKey { return deprecatedKey{subresource: "other"} },
		Add:      func(k deprecatedKey) prometheus.Gauge { return deprecated.WithLabelValues(k.labels()...) },
		Remove:   func(k deprecatedKey) { deprecated.DeleteLabelValues(k.labels()...) },
	})
	m.watches.MustRegister(r, events, sizes)
	m.deprecated.MustRegister(r, deprecated)
	r.MustRegister(m.deliveries)
	return m
}

// KeepWhileServed removes the series of resources that are no longer served.
func (m *Metrics) KeepWhileServed(kinds *apiset.Live) {
	m.watches.KeepWhile(func() func(schema.GroupVersionKind) bool {
		set := kinds.Current()
		return func(k schema.GroupVersionKind) bool { return k == otherKind || set.StoredKind(k) != nil }
	})
	m.deprecated.KeepWhile(func() func(deprecatedKey) bool {
		set := kinds.Current()
		return func(k deprecatedKey) bool { return k.of.Resource == "" || set.Resource(k.of) != nil }
	})
}

// recordDeprecated records a request for a deprecated kind.
func (m *Metrics) recordDeprecated(k *registry.Kind, subresource string) {
	m.deprecated.WithLabels(deprecatedKey{k.GVR(), subresource, k.Presentation.RemovedRelease}).Set(1)
}

// watchMetrics holds the metrics of one kind, because looking up labels costs more than counting.
type watchMetrics struct {
	events prometheus.Counter
	sizes  prometheus.Observer
	waits  prometheus.Observer
}

func (m *Metrics) of(k *registry.Kind) watchMetrics {
	return m.watches.WithLabels(k.GVK())
}

func (m watchMetrics) sent(size int) {
	m.events.Inc()
	m.sizes.Observe(float64(size))
}

func (m watchMetrics) delivered(after time.Duration) { m.waits.Observe(after.Seconds()) }
