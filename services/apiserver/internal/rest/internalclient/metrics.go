package internalclient

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts calls, under the name of Kubernetes. A nil *Metrics counts nothing.
type Metrics struct{ calls *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_selfrequest_total",
		Help: "[ALPHA] Number of requests of the server to its own API, by verb, resource and subresource.",
	}, []string{"verb", "resource", "subresource"})}
	r.MustRegister(m.calls)
	return m
}

// metricLabel returns the verb as metrics show it.
func (v Verb) metricLabel() string {
	switch v {
	case Get:
		return "GET"
	case List:
		return "LIST"
	case Create:
		return "POST"
	case Update:
		return "PUT"
	case Patch:
		return "PATCH"
	}
	return "DELETE"
}

func (m *Metrics) countCall(c *Call) {
	if m != nil {
		m.calls.WithLabelValues(c.Verb.metricLabel(), c.Resource, c.Sub).Inc()
	}
}
