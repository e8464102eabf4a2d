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

// Sorts of webhooks, as the label type has them.
const (
	sortMutating   = "admit"
	sortValidating = "validating"
)

// Values of the label error_type.
const (
	errorCalling  = "calling_webhook_error"
	errorInternal = "apiserver_internal_error"
	noError       = "no_error"
)

// Metrics of webhooks, under the names that Kubernetes has for them, and two of
// our own.
type Metrics struct {
	duration              *prometheus.HistogramVec
	rejections, requests  *prometheus.CounterVec
	failOpen              *prometheus.CounterVec
	exclusions            *prometheus.CounterVec
	evaluation            *prometheus.HistogramVec
	open                  *prometheus.GaugeVec
	answeredWithoutAsking *prometheus.CounterVec

	hooks *metrics.Series[hookKey, string] // the label name of a webhook
	mu    sync.Mutex                       // a leaf
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
			Name: "binnacle_admission_webhook_unreachable", Help: "Admission webhooks that are not called until they answer again.",
		}, []string{"name", "type"}),
		answeredWithoutAsking: counter("binnacle_admission_webhook_unasked_total", "Requests that were answered by the failurePolicy of an admission webhook without calling it, because it is known not to answer.", "name", "type"),
	}
	vectors := []vector{m.duration, m.rejections, m.requests, m.failOpen, m.exclusions, m.evaluation, m.open, m.answeredWithoutAsking}
	m.hooks = metrics.NewSeries(metrics.SeriesConfig[hookKey, string]{
		Limit: maxHooks, Overflow: func(k hookKey) hookKey { return hookKey{k.sort, otherHook} },
		Add: func(k hookKey) string { return k.name },
		Remove: func(k hookKey) {
			for _, of := range typesOf[k.sort] {
				for _, v := range vectors {
					v.DeletePartialMatch(prometheus.Labels{"name": k.name, "type": of})
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

type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

type hookKey struct{ sort, name string }

const (
	// maxHooks bounds the names of webhooks that have series; otherHook stands for the others.
	maxHooks  = 1000
	otherHook = "other"
)

// typesOf are the values that the label type has for webhooks of a sort.
var typesOf = map[string][]string{sortMutating: {"admit", "mutating"}, sortValidating: {"validating", "validate"}}

// keepWhileConfigured has the series of webhooks of a sort removed that are not configured
// any more. names returns the present ones, and false while they are not known.
func (m *Metrics) keepWhileConfigured(sort string, names func() (map[string]bool, bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names[sort] = names
}

// configured returns whether a webhook is configured.
func (m *Metrics) configured() func(hookKey) bool {
	m.mu.Lock()
	sorts := maps.Clone(m.names)
	m.mu.Unlock()
	known := map[string]map[string]bool{}
	for sort, names := range sorts {
		if now, ok := names(); ok {
			known[sort] = now
		}
	}
	return func(k hookKey) bool {
		now, ok := known[k.sort]
		return !ok || k.name == otherHook || now[k.name]
	}
}

// of calls use with the name that the series of a webhook have. The name is noted again
// afterwards, so that series are removed that came after the removal of the webhook.
func (m *Metrics) of(name, sort string, use func(name string)) {
	use(m.hooks.Of(hookKey{sort, name}))
	m.hooks.Of(hookKey{sort, name})
}

// maxCode bounds the values of the labels of codes.
const maxCode = 600

func (m *Metrics) observe(name, sort string, op admission.Operation, d time.Duration, rejected bool, code int) {
	no := strconv.FormatBool(rejected)
	m.of(name, sort, func(name string) {
		m.duration.WithLabelValues(name, sort, string(op), no).Observe(d.Seconds())
		m.requests.WithLabelValues(name, sort, string(op), strconv.Itoa(min(code, maxCode)), no).Inc()
	})
}

func (m *Metrics) rejected(name, sort string, op admission.Operation, why string, code int) {
	m.of(name, sort, func(name string) {
		m.rejections.WithLabelValues(name, sort, string(op), why, strconv.Itoa(min(code, maxCode))).Inc()
	})
}

func (m *Metrics) failedOpen(name, sort string) {
	m.of(name, sort, func(name string) { m.failOpen.WithLabelValues(name, sort).Inc() })
}

func (m *Metrics) evaluated(name, sort string, op admission.Operation, d time.Duration) {
	of := sort
	if sort == sortMutating {
		of = "mutating"
	}
	m.of(name, sort, func(name string) { m.evaluation.WithLabelValues(name, "webhook", of, string(op)).Observe(d.Seconds()) })
}

func (m *Metrics) excluded(name, sort string, op admission.Operation) {
	of := sort
	if sort == sortValidating {
		of = "validate"
	}
	m.of(name, sort, func(name string) { m.exclusions.WithLabelValues(name, "webhook", of, string(op)).Inc() })
}

// opened notes an open breaker and returns what notes its end, which leaves no series
// behind if the webhook was removed meanwhile.
func (m *Metrics) opened(name, sort string) (closed func()) {
	m.of(name, sort, func(name string) {
		g := m.open.WithLabelValues(name, sort)
		g.Inc()
		closed = g.Dec
	})
	return closed
}

func (m *Metrics) shortened(name, sort string) {
	m.of(name, sort, func(name string) { m.answeredWithoutAsking.WithLabelValues(name, sort).Inc() })
}
