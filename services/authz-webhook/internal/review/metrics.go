package review

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of a review in addition to those of authorizer.Decision.
const (
	resultInvalid     = "invalid"
	resultUnavailable = "unavailable"
)

// Metrics counts reviews.
type Metrics struct{ duration *prometheus.HistogramVec }

// NewMetrics returns the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	metrics := &Metrics{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "authz_webhook_review_duration_seconds",
		Help:    "[ALPHA] Latency of access reviews in seconds, by result: allowed, denied, no-opinion, unavailable, invalid (not a SubjectAccessReview).",
		Buckets: []float64{0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1},
	}, []string{"result"})}
	r.MustRegister(metrics.duration)
	return metrics
}

func (m *Metrics) recordReview(result string, took time.Duration) {
	m.duration.WithLabelValues(result).Observe(took.Seconds())
}
