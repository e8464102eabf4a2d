package health

import (
	"github.com/prometheus/client_golang/prometheus"
)

// slis holds the results of checks, which Kubernetes components export as /metrics/slis (KEP-3466).
type slis struct {
	registry   *prometheus.Registry
	lastResult *prometheus.GaugeVec
	results    *prometheus.CounterVec
}

func newSLIs() *slis {
	s := &slis{
		registry: prometheus.NewRegistry(),
		lastResult: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "[STABLE] This metric records the result of a single healthcheck.",
		}, []string{"name", "type"}),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "[STABLE] This metric records the results of all healthcheck.",
		}, []string{"name", "status", "type"}),
	}
	s.registry.MustRegister(s.lastResult, s.results)
	return s
}

// record records the result of a check for an endpoint.
func (s *slis) record(endpoint Endpoint, name string, err error) {
	value, status := 1.0, "success"
	if err != nil {
		value, status = 0, "error"
	}
	s.lastResult.WithLabelValues(name, string(endpoint)).Set(value)
	s.results.WithLabelValues(name, status, string(endpoint)).Inc()
}

// SLIs returns the gatherer for /metrics/slis.
func (r *Registry) SLIs() prometheus.Gatherer { return r.slis.registry }
