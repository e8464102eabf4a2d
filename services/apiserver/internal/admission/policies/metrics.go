package policies

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving/metrics"
)

// Values of the labels.
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

// Metrics holds the metrics of one sort of policies, under the names of Kubernetes.
type Metrics struct {
	series *metrics.Series[seen, handles]
}

// maxSeries bounds the combinations of policy, binding, error and action.
const maxSeries = 5000

// seen holds the values of the labels.
type seen struct{ policy, binding, class, action string }

type handles struct {
	checks prometheus.Counter
	took   prometheus.Observer
}

// PolicyType distinguishes validating and mutating policies.
type PolicyType string

// Sorts of policies.
const (
	SortValidating PolicyType = "validating"
	SortMutating   PolicyType = "mutating"
)

// NewMetrics registers the metrics of a sort.
func NewMetrics(r prometheus.Registerer, sort PolicyType) *Metrics {
	labels := []string{"policy", "policy_binding", "error_type"}
	what, by, acts := "[ALPHA] Mutation", "labeled by policy and further identified by binding.", sort == SortValidating
	one, further := "mutation", "labeled by policy and binding."
	if acts {
		labels = append(labels, "enforcement_action")
		what, by = "[BETA] Validation", "labeled by policy and further identified by binding and enforcement action taken."
		one, further = "validation", "labeled by policy and further including binding and enforcement action taken."
	}
	checks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_" + string(sort) + "_admission_policy_check_total",
		Help: what + " admission policy check total, " + by,
	}, labels)
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_" + string(sort) + "_admission_policy_check_duration_seconds",
		Help:    what + " admission latency for individual " + one + " expressions in seconds, " + further,
		Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1.0},
	}, labels)
	of := func(k seen) []string { return []string{k.policy, k.binding, k.class, k.action}[:len(labels)] }
	m := &Metrics{metrics.NewSeries(metrics.SeriesConfig[seen, handles]{
		Limit: maxSeries, Overflow: func(k seen) seen { return seen{"other", "other", k.class, k.action} },
		Add: func(k seen) handles { return handles{checks.WithLabelValues(of(k)...), took.WithLabelValues(of(k)...)} },
		Remove: func(k seen) {
			checks.DeleteLabelValues(of(k)...)
			took.DeleteLabelValues(of(k)...)
		},
	})}
	m.series.MustRegister(r, checks, took)
	return m
}

// keepWhileBound removes the series of policies and bindings that no longer exist. bound returns
// the current pairs of policy and binding, or false while they are unknown.
func (m *Metrics) keepWhileBound(bound func() (map[[2]string]bool, bool)) {
	m.series.KeepWhile(func() func(seen) bool {
		pairs, ok := bound()
		return func(k seen) bool {
			return !ok || k.policy == "other" && k.binding == "other" || pairs[[2]string{k.policy, k.binding}]
		}
	})
}

func (m *Metrics) observe(policy, binding, class, action string, took time.Duration) {
	if class == "" {
		class = noError
	}
	h := m.series.Of(seen{policy, binding, class, action})
	h.checks.Inc()
	h.took.Observe(took.Seconds())
}
