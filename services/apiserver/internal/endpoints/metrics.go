package endpoints

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/registry"
)

// Metrics of watches, under the names that Kubernetes has for them.
type Metrics struct {
	events *prometheus.CounterVec
	sizes  *prometheus.HistogramVec
	// deliveries is how long changes took from the cache to their clients.
	deliveries prometheus.Histogram
	// deprecated has the deprecated kinds that were asked for.
	deprecated *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	labels := []string{"group", "version", "kind"}
	m := &Metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_events_total", Help: "[ALPHA] Events sent to watching clients.",
		}, labels),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_watch_events_sizes", Help: "[ALPHA] Sizes of watch events in bytes.",
			Buckets: prometheus.ExponentialBuckets(1024, 2, 8),
		}, labels),
	}
	m.deliveries = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "binnacle_watch_delivery_seconds",
		Help:    "Time from when a change was applied to the watch cache until it was written to a watching client, of the oldest change of each write.",
		Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	})
	m.deprecated = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "apiserver_requested_deprecated_apis",
		Help: "[STABLE] Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release.",
	}, []string{"group", "version", "resource", "subresource", "removed_release"})
	r.MustRegister(m.events, m.sizes, m.deliveries, m.deprecated)
	return m
}

// askedDeprecated records that a deprecated kind is in use.
func (m *Metrics) askedDeprecated(k *registry.Kind, subresource string) {
	m.deprecated.WithLabelValues(k.Group, k.Version, k.Resource, subresource, k.Shown.RemovedIn).Set(1)
}

// watchMetrics are those of one kind: looking labels up costs more than
// counting.
type watchMetrics struct {
	events prometheus.Counter
	sizes  prometheus.Observer
	waits  prometheus.Observer
}

func (m *Metrics) of(k *registry.Kind) watchMetrics {
	l := []string{k.Group, k.Version, k.Kind}
	return watchMetrics{m.events.WithLabelValues(l...), m.sizes.WithLabelValues(l...), m.deliveries}
}

func (m watchMetrics) sent(size int) {
	m.events.Inc()
	m.sizes.Observe(float64(size))
}

func (m watchMetrics) delivered(after time.Duration) { m.waits.Observe(after.Seconds()) }
