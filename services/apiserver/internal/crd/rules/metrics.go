package rules

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics holds the metrics of rules and of ratcheting, under Kubernetes' names. A nil Metrics
// records nothing.
type Metrics struct{ compilation, evaluation, ratcheting prometheus.Observer }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		r.MustRegister(h)
		return h
	}
	return &Metrics{
		compilation: histogram(
			"apiserver_cel_compilation_duration_seconds",
			"[BETA] Duration of the compilation of an expression of a custom resource's schema in seconds.",
			prometheus.DefBuckets,
		),
		evaluation: histogram(
			"apiserver_cel_evaluation_duration_seconds",
			"[BETA] Duration of the evaluation of a schema's expressions on a custom resource in seconds.",
			prometheus.DefBuckets,
		),
		ratcheting: histogram(
			"apiextensions_apiserver_validation_ratcheting_seconds",
			"[ALPHA] Duration of the comparison of invalid values of an updated custom resource with their old values in seconds.",
			prometheus.ExponentialBuckets(0.00001, 4, 10),
		),
	}
}

// Compared records the time that was spent on comparing the values of an update with the old ones.
func (m *Metrics) Compared(took time.Duration) {
	if m != nil {
		m.ratcheting.Observe(took.Seconds())
	}
}

// observeCompilation records the duration of a compilation that began at start.
func (m *Metrics) observeCompilation(start time.Time) {
	if m != nil {
		m.compilation.Observe(time.Since(start).Seconds())
	}
}

// observeEvaluation records the duration of an evaluation that began at start.
func (m *Metrics) observeEvaluation(start time.Time) {
	if m != nil {
		m.evaluation.Observe(time.Since(start).Seconds())
	}
}
