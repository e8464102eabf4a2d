package internalclient

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts calls, under the name of Kubernetes. A nil *Metrics counts nothing.
type Metrics struct{ calls *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	result := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_selfrequest_total",
		Help: "[ALPHA] Number of requests of the server to its own API, by verb, resource and subresource.",
	}, []string{"verb", "resource", "subresource"})}
	r.MustRegister(result.calls)
	return result
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

func (m *Metrics) countCall(call *Call) {
	if m != nil {
		m.calls.WithLabelValues(call.Verb.metricLabel(), call.Resource, call.Sub).Inc()
	}
}
