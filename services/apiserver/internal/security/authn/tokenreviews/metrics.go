package tokenreviews

import "github.com/prometheus/client_golang/prometheus"

// cacheMetrics uses the names of Kubernetes where they exist.
type cacheMetrics struct {
	hit, miss       prometheus.Observer
	fetched, failed prometheus.Counter
	active          prometheus.Gauge
	dropped         prometheus.Counter
}

func newMetrics(r prometheus.Registerer, kept func() float64) *cacheMetrics {
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "authentication_token_cache_request_duration_seconds",
		Help: "[ALPHA] Duration of reviews of bearer tokens in seconds by whether the answer was kept.",
	}, []string{"status"})
	fetches := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "authentication_token_cache_fetch_total",
		Help: "[ALPHA] Reviews of bearer tokens that were not kept, by whether they came to an answer.",
	}, []string{"status"})
	m := &cacheMetrics{
		hit: duration.WithLabelValues("hit"), miss: duration.WithLabelValues("miss"),
		fetched: fetches.WithLabelValues("ok"), failed: fetches.WithLabelValues("error"),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "authentication_token_cache_active_fetch_count",
			Help: "[ALPHA] Reviews of bearer tokens that go on now.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "authentication_token_cache_dropped_total",
			Help: "[ALPHA] Kept reviews of bearer tokens that were forgotten because an object that they depend on changed.",
		}),
	}
	r.MustRegister(duration, fetches, m.active, m.dropped, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "authentication_token_cache_kept",
		Help: "[ALPHA] Good reviews of bearer tokens that are kept now.",
	}, kept))
	return m
}
