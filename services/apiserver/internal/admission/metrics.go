package admission

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the metric label type, one for each phase of the chain.
const (
	admitPhase    = "admit"
	validatePhase = "validate"
)

// Metrics holds the metrics of the chain. Their names are the same as in Kubernetes. A nil *Metrics
// records nothing.
type Metrics struct {
	pluginDurations *prometheus.HistogramVec
	phaseDurations  *prometheus.HistogramVec
	phaseSummary    *prometheus.SummaryVec
}

// NewMetrics creates the metrics and registers them with registerer.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	buckets := []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5}
	metrics := &Metrics{
		pluginDurations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_admission_controller_admission_duration_seconds",
			Help:    "[STABLE] Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
			Buckets: buckets,
		}, []string{"name", "type", "operation", "rejected"}),
		phaseDurations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_admission_step_admission_duration_seconds",
			Help:    "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit).",
			Buckets: buckets,
		}, []string{"type", "operation", "rejected"}),
		phaseSummary: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name:       "apiserver_admission_step_admission_duration_seconds_summary",
			Help:       "[ALPHA] Admission sub-step latency summary in seconds, broken out for each operation and API resource and step type (validate or admit).",
			MaxAge:     5 * time.Hour,
			Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001},
		}, []string{"type", "operation", "rejected"}),
	}
	registerer.MustRegister(metrics.pluginDurations, metrics.phaseDurations, metrics.phaseSummary)
	return metrics
}

// observePlugin records the duration of one call of a plugin.
func (m *Metrics) observePlugin(name string, op Operation, phase string, rejected bool, duration time.Duration) {
	if m == nil {
		return
	}
	m.pluginDurations.WithLabelValues(name, phase, string(op), strconv.FormatBool(rejected)).Observe(duration.Seconds())
}

// observePhase records the duration of all plugins of a phase.
func (m *Metrics) observePhase(op Operation, phase string, rejected bool, duration time.Duration) {
	if m == nil {
		return
	}
	labels := []string{phase, string(op), strconv.FormatBool(rejected)}
	m.phaseDurations.WithLabelValues(labels...).Observe(duration.Seconds())
	m.phaseSummary.WithLabelValues(labels...).Observe(duration.Seconds())
}
