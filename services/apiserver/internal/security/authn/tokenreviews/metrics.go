package tokenreviews

import "github.com/prometheus/client_golang/prometheus"

// cacheMetrics holds the metrics of a Cache. It uses the names of Kubernetes where they exist.
type cacheMetrics struct {
	hits, miss      prometheus.Observer
	fetched, failed prometheus.Counter
	active          prometheus.Gauge
	dropped         prometheus.Counter
}

// newMetrics registers the metrics. cachedSuccesses returns the number of cached successes.
func newMetrics(registerer prometheus.Registerer, cachedSuccesses func() float64) *cacheMetrics {
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "authentication_token_cache_request_duration_seconds",
		Help: "[ALPHA] Duration of token reviews in seconds, by whether the result came from the cache.",
	}, []string{"status"})
	fetches := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "authentication_token_cache_fetch_total",
		Help: "[ALPHA] Number of token reviews that were sent to the service, by status.",
	}, []string{"status"})
	created := &cacheMetrics{
		hits:    duration.WithLabelValues("hit"),
		miss:    duration.WithLabelValues("miss"),
		fetched: fetches.WithLabelValues("ok"),
		failed:  fetches.WithLabelValues("error"),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "authentication_token_cache_active_fetch_count",
			Help: "[ALPHA] Number of token reviews in progress.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "authentication_token_cache_dropped_total",
			Help: "[ALPHA] Number of cached token reviews invalidated by a change of an object that they depend on.",
		}),
	}
	registerer.MustRegister(duration, fetches, created.active, created.dropped, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "authentication_token_cache_kept",
		Help: "[ALPHA] Number of successful token reviews in the cache.",
	}, cachedSuccesses))
	return created
}
