package internalclient

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count what the server asks of itself, under the name that Kubernetes has
// for it. Nil ones do not.
type Metrics struct{ calls *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_selfrequest_total", Help: "[ALPHA] Requests of the server to itself, by verb, resource and subresource.",
	}, []string{"verb", "resource", "subresource"})}
	r.MustRegister(m.calls)
	return m
}

// reported are the verbs as metrics have them.
func (v Verb) reported() string {
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

func (m *Metrics) count(c *Call) {
	if m != nil {
		m.calls.WithLabelValues(c.Verb.reported(), c.Resource, c.Sub).Inc()
	}
}
