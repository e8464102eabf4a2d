package policies

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The values of the labels.
const (
	noError      = "no_error"
	errorCompile = "compile_error"
	errorInvalid = "invalid_error"
	errorBudget  = "out_of_budget"

	allowed = "allow"
	denied  = "deny"
	warned  = "warn"
	noted   = "audit"
)

// Metrics of one sort of policies, under the names that Kubernetes has for them.
type Metrics struct {
	checks *prometheus.CounterVec
	took   *prometheus.HistogramVec
	// acts tells that there is a label for what was done.
	acts bool
	// found are the metrics of labels, which take long to look up: handles by seen.
	found sync.Map
}

// seen are the values of labels.
type seen struct{ policy, binding, class, action string }

type handles struct {
	checks prometheus.Counter
	took   prometheus.Observer
}

// Sort is what policies do.
type Sort string

// The sorts.
const (
	SortValidating Sort = "validating"
	SortMutating   Sort = "mutating"
)

// NewMetrics registers the metrics of a sort.
func NewMetrics(r prometheus.Registerer, sort Sort) *Metrics {
	labels := []string{"policy", "policy_binding", "error_type"}
	what, by, acts := "[ALPHA] Mutation", "labeled by policy and further identified by binding.", sort == SortValidating
	one, of := "mutation", "labeled by policy and binding."
	if acts {
		labels = append(labels, "enforcement_action")
		what, by = "[BETA] Validation", "labeled by policy and further identified by binding and enforcement action taken."
		one, of = "validation", "labeled by policy and further including binding and enforcement action taken."
	}
	m := &Metrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_" + string(sort) + "_admission_policy_check_total",
			Help: what + " admission policy check total, " + by,
		}, labels),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_" + string(sort) + "_admission_policy_check_duration_seconds",
			Help:    what + " admission latency for individual " + one + " expressions in seconds, " + of,
			Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1.0},
		}, labels),
		acts: acts,
	}
	r.MustRegister(m.checks, m.took)
	return m
}

func (m *Metrics) observe(policy, binding, class, action string, took time.Duration) {
	if class == "" {
		class = noError
	}
	key := seen{policy, binding, class, action}
	known, _ := m.found.Load(key)
	h, ok := known.(handles)
	if !ok {
		labels := []string{policy, binding, class, action}
		if !m.acts {
			labels = labels[:3]
		}
		h = handles{m.checks.WithLabelValues(labels...), m.took.WithLabelValues(labels...)}
		m.found.Store(key, h)
	}
	h.checks.Inc()
	h.took.Observe(took.Seconds())
}
