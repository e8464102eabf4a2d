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

// Types of webhooks, as values of the label type. Some metrics have other values; see typesOf.
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

// Metrics holds the metrics of webhooks. Their names are the same as in Kubernetes, except for open
// and skippedCalls.
type Metrics struct {
	duration             *prometheus.HistogramVec
	rejections, requests *prometheus.CounterVec
	failOpen             *prometheus.CounterVec
	exclusions           *prometheus.CounterVec
	evaluation           *prometheus.HistogramVec
	open                 *prometheus.GaugeVec
	skippedCalls         *prometheus.CounterVec

	// labels holds the value of the label name for each webhook: its name, or otherHook.
	labels *metrics.Series[hookKey, string]
	mu     sync.Mutex // leaf lock
	// names returns the names of the configured webhooks, by type; see keepWhileConfigured.
	names map[string]func() (map[string]bool, bool)
}

// NewMetrics creates the metrics and registers them with registerer.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	const prefix = "apiserver_admission_webhook_"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	out := &Metrics{
		names: map[string]func() (map[string]bool, bool){},
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    prefix + "admission_duration_seconds",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 25},
			Help:    "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
		}, []string{"name", "type", "operation", "rejected"}),
		rejections: counter(
			prefix+"rejection_count",
			"[ALPHA] Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
			"name",
			"type",
			"operation",
			"error_type",
			"rejection_code",
		),
		requests: counter(
			prefix+"request_total",
			"[ALPHA] Admission webhook request total, identified by name and broken out for each admission type (validating or mutating) and operation. Additional labels specify whether the request was rejected or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
			"name",
			"type",
			"operation",
			"code",
			"rejected",
		),
		failOpen: counter(
			prefix+"fail_open_count",
			"[ALPHA] Admission webhook fail open count, identified by name and broken out for each admission type (validating or mutating).",
			"name",
			"type",
		),
		exclusions: counter(
			"apiserver_admission_match_condition_exclusions_total",
			"[ALPHA] Admission match condition evaluation exclusions count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
			"name",
			"kind",
			"type",
			"operation",
		),
		evaluation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_admission_match_condition_evaluation_seconds",
			Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25},
			Help:    "[ALPHA] Admission match condition evaluation time in seconds, identified by name and broken out for each kind containing matchConditions (webhook or policy), operation and type (validate or admit).",
		}, []string{"name", "kind", "type", "operation"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "binnacle_admission_webhook_unreachable",
			Help: "Whether an admission webhook is unreachable: it is not called until a probe succeeds.",
		}, []string{"name", "type"}),
		skippedCalls: counter(
			"binnacle_admission_webhook_unasked_total",
			"Requests decided by the failurePolicy of an admission webhook without a call, because it does not respond.",
			"name",
			"type",
		),
	}
	vectors := []vector{out.duration, out.rejections, out.requests, out.failOpen, out.exclusions, out.evaluation, out.open, out.skippedCalls}
	out.labels = metrics.NewSeries(metrics.SeriesConfig[hookKey, string]{
		Limit:    maxHooks,
		Overflow: func(k hookKey) hookKey { return hookKey{hookType: k.hookType, name: otherHook} },
		Add:      func(k hookKey) string { return k.name },
		Remove: func(k hookKey) {
			for _, label := range typesOf[k.hookType] {
				for _, v := range vectors {
					v.DeletePartialMatch(prometheus.Labels{"name": k.name, "type": label})
				}
			}
		},
	})
	for _, v := range vectors {
		out.labels.MustRegister(registerer, v)
	}
	out.labels.KeepWhile(out.isConfigured)
	return out
}

// vector is the common interface of metrics with labels.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

// hookKey identifies a webhook. hookType is typeMutating or typeValidating.
type hookKey struct{ hookType, name string }

const (
	// maxHooks bounds the webhooks that have their own series. All others share the series of
	// otherHook.
	maxHooks  = 1000
	otherHook = "other"
)

// typesOf maps a type of webhook to the values of the label type in all metrics.
var typesOf = map[string][]string{typeMutating: {"admit", "mutating"}, typeValidating: {"validating", "validate"}}

// keepWhileConfigured arranges that the series of webhooks of a type are removed when the webhooks
// are no longer configured. names returns the names of the configured webhooks, or false while they
// are unknown.
func (m *Metrics) keepWhileConfigured(hookType string, names func() (map[string]bool, bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names[hookType] = names
}

// isConfigured returns a function that reports whether a webhook is configured now, or may be.
func (m *Metrics) isConfigured() func(hookKey) bool {
	m.mu.Lock()
	byType := maps.Clone(m.names)
	m.mu.Unlock()
	known := map[string]map[string]bool{}
	for hookType, names := range byType {
		if configured, ok := names(); ok {
			known[hookType] = configured
		}
	}
	return func(k hookKey) bool {
		configured, ok := known[k.hookType]
		return !ok || k.name == otherHook || configured[k.name]
	}
}

// withName calls use with the value of the label name for a webhook. If the webhook was removed
// meanwhile, use may have created its series again. The second lookup removes them.
func (m *Metrics) withName(name, hookType string, use func(name string)) {
	key := hookKey{hookType: hookType, name: name}
	use(m.labels.WithLabels(key))
	m.labels.WithLabels(key)
}

// maxCode is the largest value of labels with HTTP status codes. Larger codes are truncated to it.
const maxCode = 600

// observeCall records a call of a webhook: its duration, whether it rejected the request, and the
// HTTP status code.
func (m *Metrics) observeCall(name, hookType string, op admission.Operation, duration time.Duration, rejected bool, code int) {
	rejectedLabel := strconv.FormatBool(rejected)
	m.withName(name, hookType, func(name string) {
		m.duration.WithLabelValues(name, hookType, string(op), rejectedLabel).Observe(duration.Seconds())
		m.requests.WithLabelValues(name, hookType, string(op), strconv.Itoa(min(code, maxCode)), rejectedLabel).Inc()
	})
}

// observeRejection counts a rejected request. code is the HTTP status code of the rejection, or 0.
func (m *Metrics) observeRejection(name, hookType string, op admission.Operation, errorType string, code int) {
	m.withName(name, hookType, func(name string) {
		m.rejections.WithLabelValues(name, hookType, string(op), errorType, strconv.Itoa(min(code, maxCode))).Inc()
	})
}

// observeFailOpen counts a failed call that did not reject the request.
func (m *Metrics) observeFailOpen(name, hookType string) {
	m.withName(name, hookType, func(name string) { m.failOpen.WithLabelValues(name, hookType).Inc() })
}

// observeConditions records the duration of evaluating the match conditions of a webhook.
func (m *Metrics) observeConditions(name, hookType string, op admission.Operation, duration time.Duration) {
	label := hookType
	if hookType == typeMutating {
		label = "mutating"
	}
	m.withName(name, hookType, func(name string) {
		m.evaluation.WithLabelValues(name, "webhook", label, string(op)).Observe(duration.Seconds())
	})
}

// observeExclusion counts a request that the match conditions of a webhook exclude.
func (m *Metrics) observeExclusion(name, hookType string, op admission.Operation) {
	label := hookType
	if hookType == typeValidating {
		label = "validate"
	}
	m.withName(name, hookType, func(name string) { m.exclusions.WithLabelValues(name, "webhook", label, string(op)).Inc() })
}

// observeOpened counts an open breaker. It returns a function that the caller must call when the
// breaker is no longer open. The function creates no series, even if the webhook was removed.
func (m *Metrics) observeOpened(name, hookType string) (closed func()) {
	m.withName(name, hookType, func(name string) {
		g := m.open.WithLabelValues(name, hookType)
		g.Inc()
		closed = g.Dec
	})
	return closed
}

// observeSkipped counts a call that an open breaker prevented.
func (m *Metrics) observeSkipped(name, hookType string) {
	m.withName(name, hookType, func(name string) { m.skippedCalls.WithLabelValues(name, hookType).Inc() })
}
