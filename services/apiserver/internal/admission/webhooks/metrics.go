package webhooks

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving/metrics"
	"binnacle/services/apiserver/internal/admission"
)

// Types of webhooks; values of the label type.
const (
	typeMutating   = "admit"
	typeValidating = "validating"
)

// Values of the label error_type.
const (
	errorCalling  = "calling_webhook_error"
	errorInternal = "apiserver_internal_error"
	noError       = "no_error"
)

// Metrics holds the metrics of webhooks, under the names of Kubernetes, and two of our own.
type Metrics struct {
	duration             *prometheus.HistogramVec
	rejections, requests *prometheus.CounterVec
	failOpen             *prometheus.CounterVec
	exclusions           *prometheus.CounterVec
	evaluation           *prometheus.HistogramVec
	open                 *prometheus.GaugeVec
	skippedCalls         *prometheus.CounterVec

	hooks *metrics.Series[hookKey, string] // the label value of a webhook
	mu    sync.Mutex                       // leaf lock
	names map[string]func() (map[string]bool, bool)
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	const prefix = "apiserver_admission_webhook_"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		names: map[string]func() (map[string]bool, bool){},
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "admission_duration_seconds", Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 25},
			Help: "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
		}, []string{"name", "type", "operation", "rejected"}),
		rejections: counter(prefix+"rejection_count", "[ALPHA] Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
			"name", "type", "operation", "error_type", "rejection_code"),
		requests: counter(prefix+"request_total", "[ALPHA] Admission webhook request total, identified by name and broken out for each admission type (validating or mutating) and operation. Additional labels specify whether the request was rejected or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
			"name", "type", "operation", "code", "rejected"),
		failOpen: counter(prefix+"fail_open_count", "[ALPHA] Admission webhook fail open count, identified by name and broken out for each admission type (validating or mutating).", "name", "type"),
		exclusions: counter("apiserver_admission_match_condition_exclusions_total", "[ALPHA] Admission match condition evaluation exclusions count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
			"name", "kind", "type", "operation"),
		evaluation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_admission_match_condition_evaluation_seconds", Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25},
			Help: "[ALPHA] Admission match condition evaluation time in seconds, identified by name and broken out for each kind containing matchConditions (webhook or policy), operation and type (validate or admit).",
		}, []string{"name", "kind", "type", "operation"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "binnacle_admission_webhook_unreachable", Help: "Whether an admission webhook is unreachable: it is not called until a probe succeeds.",
		}, []string{"name", "type"}),
		skippedCalls: counter("binnacle_admission_webhook_unasked_total", "Requests decided by the failurePolicy of an admission webhook without a call, because it does not respond.", "name", "type"),
	}
	vectors := []vector{m.duration, m.rejections, m.requests, m.failOpen, m.exclusions, m.evaluation, m.open, m.skippedCalls}
	m.hooks = metrics.NewSeries(metrics.SeriesConfig[hookKey, string]{
		Limit: maxHooks, Overflow: func(k hookKey) hookKey { return hookKey{k.hookType, otherHook} },
		Add: func(k hookKey) string { return k.name },
		Remove: func(k hookKey) {
			for _, label := range typesOf[k.hookType] {
				for _, v := range vectors {
					v.DeletePartialMatch(prometheus.Labels{"name": k.name, "type": label})
				}
			}
		},
	})
	for _, v := range vectors {
		m.hooks.MustRegister(r, v)
	}
	m.hooks.KeepWhile(m.configured)
	return m
}

// vector is a metric with labels.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

// hookKey identifies the series of a webhook.
type hookKey struct{ hookType, name string }

const (
	// maxHooks bounds the webhooks that have their own series. All others share the series of
	// otherHook.
	maxHooks  = 1000
	otherHook = "other"
)

// typesOf maps a type of webhook to the values of the label type in all metrics.
var typesOf = map[string][]string{typeMutating: {"admit", "mutating"}, typeValidating: {"validating", "validate"}}

// keepWhileConfigured removes the series of webhooks of a type that are no longer configured. names
// returns the configured webhooks, and false if they are unknown.
func (m *Metrics) keepWhileConfigured(hookType string, names func() (map[string]bool, bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names[hookType] = names
}

// configured returns a function that reports whether a webhook is configured.
func (m *Metrics) configured() func(hookKey) bool {
	m.mu.Lock()
	byType := maps.Clone(m.names)
	m.mu.Unlock()
	known := map[string]map[string]bool{}
	for hookType, names := range byType {
		if now, ok := names(); ok {
			known[hookType] = now
		}
	}
	return func(k hookKey) bool {
		now, ok := known[k.hookType]
		return !ok || k.name == otherHook || now[k.name]
	}
}

// withName calls use with the label value for a webhook. It looks up the value again afterwards,
// which removes series that were created after the webhook was removed.
func (m *Metrics) withName(name, hookType string, use func(name string)) {
	use(m.hooks.WithLabels(hookKey{hookType, name}))
	m.hooks.WithLabels(hookKey{hookType, name})
}

// maxCode bounds the values of labels with status codes.
const maxCode = 600

func (m *Metrics) observe(name, hookType string, op admission.Operation, d time.Duration, rejected bool, code int) {
	rejectedLabel := strconv.FormatBool(rejected)
	m.withName(name, hookType, func(name string) {
		m.duration.WithLabelValues(name, hookType, string(op), rejectedLabel).Observe(d.Seconds())
		m.requests.WithLabelValues(name, hookType, string(op), strconv.Itoa(min(code, maxCode)), rejectedLabel).Inc()
	})
}

func (m *Metrics) rejected(name, hookType string, op admission.Operation, errorType string, code int) {
	m.withName(name, hookType, func(name string) {
		m.rejections.WithLabelValues(name, hookType, string(op), errorType, strconv.Itoa(min(code, maxCode))).Inc()
	})
}

func (m *Metrics) failedOpen(name, hookType string) {
	m.withName(name, hookType, func(name string) { m.failOpen.WithLabelValues(name, hookType).Inc() })
}

func (m *Metrics) evaluated(name, hookType string, op admission.Operation, d time.Duration) {
	label := hookType
	if hookType == typeMutating {
		label = "mutating"
	}
	m.withName(name, hookType, func(name string) {
		m.evaluation.WithLabelValues(name, "webhook", label, string(op)).Observe(d.Seconds())
	})
}

func (m *Metrics) excluded(name, hookType string, op admission.Operation) {
	label := hookType
	if hookType == typeValidating {
		label = "validate"
	}
	m.withName(name, hookType, func(name string) { m.exclusions.WithLabelValues(name, "webhook", label, string(op)).Inc() })
}

// opened records an open breaker and returns a function that records its end. The function leaves
// no series behind if the webhook was removed in between.
func (m *Metrics) opened(name, hookType string) (closed func()) {
	m.withName(name, hookType, func(name string) {
		g := m.open.WithLabelValues(name, hookType)
		g.Inc()
		closed = g.Dec
	})
	return closed
}

func (m *Metrics) skipped(name, hookType string) {
	m.withName(name, hookType, func(name string) { m.skippedCalls.WithLabelValues(name, hookType).Inc() })
}
