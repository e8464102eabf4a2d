package telemetry

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/libs/serving/metrics"

	"binnacle/services/apiserver/internal/api/requestinfo"
)

// latencyBuckets returns the bucket bounds of response latencies in seconds.
func latencyBuckets() []float64 {
	return []float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
}

// readWriteGauges holds a gauge of read-only requests and a gauge of mutating requests. All types in
// this file look up the metrics of their labels once, because a lookup in a metric vector costs more
// than an observation.
type readWriteGauges struct{ reading, mutating prometheus.Gauge }

func newReadWriteGauges(registerer prometheus.Registerer, name, help string) readWriteGauges {
	gauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"request_kind"})
	registerer.MustRegister(gauges)
	return readWriteGauges{reading: gauges.WithLabelValues("readOnly"), mutating: gauges.WithLabelValues("mutating")}
}

// gaugeFor returns the gauge of reading or mutating requests.
func (g *readWriteGauges) gaugeFor(info *requestinfo.Info) prometheus.Gauge {
	if info.IsWrite() {
		return g.mutating
	}
	return g.reading
}

// FilterTimes holds the histograms of the time from the start of a filter until it calls the next
// one.
type FilterTimes struct{ Authentication, Impersonation, FlowControl, InFlight, Authorization prometheus.Observer }

// newFilterTimes registers the histogram of filter latencies.
func newFilterTimes(registerer prometheus.Registerer) FilterTimes {
	latencies := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_request_filter_duration_seconds",
		Help:    "[ALPHA] Latency of a request filter in seconds, by filter.",
		Buckets: []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0, 10.0, 15.0, 30.0},
	}, []string{"filter"})
	registerer.MustRegister(latencies)
	return FilterTimes{
		Authentication: latencies.WithLabelValues("authentication"),
		Impersonation:  latencies.WithLabelValues("impersonation"),
		FlowControl:    latencies.WithLabelValues("priorityandfairness"),
		InFlight:       latencies.WithLabelValues("maxinflight"),
		Authorization:  latencies.WithLabelValues("authorization"),
	}
}

// ObserveSince records and returns the time since start.
func ObserveSince(observer prometheus.Observer, start time.Time) time.Duration {
	took := time.Since(start)
	observer.Observe(took.Seconds())
	return took
}

// invalidValidation is the label value for unknown levels of field validation.
const invalidValidation = "invalid"

// newValidationTimes registers the histogram of write latencies and returns its observers, by level
// of field validation.
func newValidationTimes(registerer prometheus.Registerer) map[string]prometheus.Observer {
	latencies := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "field_validation_request_duration_seconds",
		Help:    "[ALPHA] Response latency of writes in seconds by requested field validation.",
		Buckets: latencyBuckets(),
	}, []string{"field_validation"})
	registerer.MustRegister(latencies)
	observers := map[string]prometheus.Observer{}
	for _, level := range []string{
		"", metav1.FieldValidationIgnore, metav1.FieldValidationWarn, metav1.FieldValidationStrict,
		invalidValidation,
	} {
		observers[level] = latencies.WithLabelValues(level)
	}
	return observers
}

// observeValidation records the latency of a write under its level of field validation.
func (m *Metrics) observeValidation(r *http.Request, took time.Duration) {
	level, _ := api.Parameter(r.URL.RawQuery, "fieldValidation")
	observer, ok := m.validation[level]
	if !ok {
		observer = m.validation[invalidValidation]
	}
	observer.Observe(took.Seconds())
}

// bodySizes is the histogram of body sizes, by resource and verb.
type bodySizes struct {
	*metrics.Series[bodyKey, prometheus.Observer]
}

// bodyKey holds the labels of the metric of body sizes.
type bodyKey struct{ group, resource, verb string }

// labelValues returns the values of the labels.
func (k bodyKey) labelValues() []string {
	verb := k.verb
	if verb == "deletecollection" {
		verb = "delete_collection"
	}
	return []string{schema.GroupResource{Group: k.group, Resource: k.resource}.String(), verb}
}

// newBodySizes registers the histogram of body sizes.
func newBodySizes(registerer prometheus.Registerer) *bodySizes {
	sizes := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_request_body_size_bytes", Help: "[ALPHA] Sizes of the bodies of requests in bytes, by resource and verb.",
		Buckets: prometheus.LinearBuckets(50_000, 100_000, 31),
	}, []string{"resource", "verb"})
	series := metrics.NewSeries(metrics.SeriesConfig[bodyKey, prometheus.Observer]{
		Limit:  maxBodySeries,
		Add:    func(k bodyKey) prometheus.Observer { return sizes.WithLabelValues(k.labelValues()...) },
		Remove: func(k bodyKey) { sizes.DeleteLabelValues(k.labelValues()...) },
		// Beyond the limit, all resources share one series per verb, with an empty resource.
		Overflow: func(k bodyKey) bodyKey { return bodyKey{verb: k.verb} },
	})
	series.MustRegister(registerer, sizes)
	return &bodySizes{series}
}

// observeSize records the size of a body if the resource is served.
func (b *bodySizes) observeSize(info *requestinfo.Info, size int) {
	if info.Target == nil {
		return
	}
	b.WithLabels(bodyKey{info.Group, info.Resource, info.Verb}).Observe(float64(size))
}

// NewHandshakeErrors registers the counter of failed TLS handshakes.
func NewHandshakeErrors(registerer prometheus.Registerer) prometheus.Counter {
	counter := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "apiserver_tls_handshake_errors_total", Help: "[ALPHA] Number of failed TLS handshakes with clients.",
	})
	registerer.MustRegister(counter)
	return counter
}

// isApply reports whether a patch is a server-side apply.
func isApply(r *http.Request) bool {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return media == api.MediaApplyYAML || media == api.MediaApplyCBOR
}
