package policies

import (
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
}

// NewMetrics registers the metrics of a sort, "validating" or "mutating".
func NewMetrics(r prometheus.Registerer, sort string) *Metrics {
	labels := []string{"policy", "policy_binding", "error_type", "enforcement_action"}
	m := &Metrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_" + sort + "_admission_policy_check_total",
			Help: "[BETA] " + title(sort) + " admission policy check total, labeled by policy and further identified by binding and enforcement action taken.",
		}, labels),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_" + sort + "_admission_policy_check_duration_seconds",
			Help:    "[BETA] " + title(sort) + " admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
			Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1.0},
		}, labels),
	}
	r.MustRegister(m.checks, m.took)
	return m
}

func title(sort string) string {
	if sort == "mutating" {
		return "Mutation"
	}
	return "Validation"
}

func (m *Metrics) observe(policy, binding, class, action string, took time.Duration) {
	if class == "" {
		class = noError
	}
	m.checks.WithLabelValues(policy, binding, class, action).Inc()
	m.took.WithLabelValues(policy, binding, class, action).Observe(took.Seconds())
}
