package policies

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving/metrics"
)

// Values of the label error_type.
const (
	noError      = "no_error"
	errorCompile = "compile_error"
	errorInvalid = "invalid_error"
	errorBudget  = "out_of_budget"
)

// Values of the label enforcement_action.
const (
	allowed = "allow"
	denied  = "deny"
	warned  = "warn"
	audited = "audit"
)

// Metrics holds the metrics of one type of policies. Their names are the same as in Kubernetes.
type Metrics struct {
	series *metrics.Series[seriesKey, series]
}

// maxSeries bounds the combinations of label values. Further combinations are counted under the
// policy and binding "other".
const maxSeries = 5000

// seriesKey holds the values of the labels.
type seriesKey struct{ policy, binding, class, action string }

// series holds the metrics of one set of label values.
type series struct {
	checks   prometheus.Counter
	duration prometheus.Observer
}

// PolicyType distinguishes validating and mutating policies.
type PolicyType string

// Types of policies, as they occur in the names of metrics.
const (
	ValidatingPolicies PolicyType = "validating"
	MutatingPolicies   PolicyType = "mutating"
)

// NewMetrics creates the metrics of a type of policies and registers them with registerer.
func NewMetrics(registerer prometheus.Registerer, policyType PolicyType) *Metrics {
	labels := []string{"policy", "policy_binding", "error_type"}
	subject := "[ALPHA] Mutation"
	labeledBy := "labeled by policy and further identified by binding."
	expressionType := "mutation"
	durationLabels := "labeled by policy and binding."
	if policyType == ValidatingPolicies {
		labels = append(labels, "enforcement_action")
		subject = "[BETA] Validation"
		labeledBy = "labeled by policy and further identified by binding and enforcement action taken."
		expressionType = "validation"
		durationLabels = "labeled by policy and further including binding and enforcement action taken."
	}
	checks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_" + string(policyType) + "_admission_policy_check_total",
		Help: subject + " admission policy check total, " + labeledBy,
	}, labels)
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_" + string(policyType) + "_admission_policy_check_duration_seconds",
		Help:    subject + " admission latency for individual " + expressionType + " expressions in seconds, " + durationLabels,
		Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1.0},
	}, labels)
	labelValues := func(k seriesKey) []string {
		values := []string{k.policy, k.binding, k.class, k.action}
		return values[:len(labels)] // mutating policies have no action
	}
	out := &Metrics{metrics.NewSeries(metrics.SeriesConfig[seriesKey, series]{
		Limit: maxSeries, Overflow: func(k seriesKey) seriesKey {
			return seriesKey{policy: "other", binding: "other", class: k.class, action: k.action}
		},
		Add: func(k seriesKey) series {
			return series{checks: checks.WithLabelValues(labelValues(k)...), duration: duration.WithLabelValues(labelValues(k)...)}
		},
		Remove: func(k seriesKey) {
			checks.DeleteLabelValues(labelValues(k)...)
			duration.DeleteLabelValues(labelValues(k)...)
		},
	})}
	out.series.MustRegister(registerer, checks, duration)
	return out
}

// keepWhileBound removes series whose policy or binding no longer exists. bound returns the current
// pairs of policy and binding, or false while they are unknown.
func (m *Metrics) keepWhileBound(bound func() (map[[2]string]bool, bool)) {
	m.series.KeepWhile(func() func(seriesKey) bool {
		pairs, ok := bound()
		return func(k seriesKey) bool {
			isOverflow := k.policy == "other" && k.binding == "other"
			return !ok || isOverflow || pairs[[2]string{k.policy, k.binding}]
		}
	})
}

// observe counts the evaluation of an expression. class is the error class; "" means no error.
// action is the enforcement action, "" for mutating policies.
func (m *Metrics) observe(policy, binding, class, action string, took time.Duration) {
	if class == "" {
		class = noError
	}
	h := m.series.WithLabels(seriesKey{policy: policy, binding: binding, class: class, action: action})
	h.checks.Inc()
	h.duration.Observe(took.Seconds())
}
