package review

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// result is the result of a review.
type result string

const (
	resultAuthenticated result = "authenticated"
	resultRejected      result = "refused"
	resultUnknown       result = "unknown"
	resultUnavailable   result = "unavailable"
	resultInvalid       result = "invalid"
)

// Metrics counts reviews.
type Metrics struct{ duration *prometheus.HistogramVec }

// NewMetrics returns the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	metrics := &Metrics{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "authn_webhook_review_duration_seconds",
		Help:    "[ALPHA] Latency of token reviews in seconds, by result: authenticated, refused, unknown (no authenticator accepts the token), unavailable, invalid (not a TokenReview).",
		Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5},
	}, []string{"result"})}
	r.MustRegister(metrics.duration)
	for _, s := range []result{resultAuthenticated, resultRejected, resultUnknown, resultUnavailable, resultInvalid} {
		metrics.duration.WithLabelValues(string(s))
	}
	return metrics
}

func (m *Metrics) recordReview(r result, took time.Duration) {
	m.duration.WithLabelValues(string(r)).Observe(took.Seconds())
}
