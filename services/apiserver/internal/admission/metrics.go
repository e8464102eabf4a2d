package admission

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label type.
const (
	admit    = "admit"
	validate = "validate"
)

// Metrics holds the metrics of the chain, under the names of Kubernetes.
type Metrics struct {
	plugins *prometheus.HistogramVec
	steps   *prometheus.HistogramVec
	summary *prometheus.SummaryVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	buckets := []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5}
	m := &Metrics{
		plugins: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_admission_controller_admission_duration_seconds",
			Help:    "[STABLE] Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
			Buckets: buckets,
		}, []string{"name", "type", "operation", "rejected"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_admission_step_admission_duration_seconds",
			Help:    "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit).",
			Buckets: buckets,
		}, []string{"type", "operation", "rejected"}),
		summary: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name:       "apiserver_admission_step_admission_duration_seconds_summary",
			Help:       "[ALPHA] Admission sub-step latency summary in seconds, broken out for each operation and API resource and step type (validate or admit).",
			MaxAge:     5 * time.Hour,
			Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001},
		}, []string{"type", "operation", "rejected"}),
	}
	r.MustRegister(m.plugins, m.steps, m.summary)
	return m
}

func (m *Metrics) plugin(name string, op Operation, step string, rejected bool, d time.Duration) {
	m.plugins.WithLabelValues(name, step, string(op), strconv.FormatBool(rejected)).Observe(d.Seconds())
}

func (m *Metrics) step(op Operation, step string, rejected bool, d time.Duration) {
	labels := []string{step, string(op), strconv.FormatBool(rejected)}
	m.steps.WithLabelValues(labels...).Observe(d.Seconds())
	m.summary.WithLabelValues(labels...).Observe(d.Seconds())
}
