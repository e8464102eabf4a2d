package audit

import "github.com/prometheus/client_golang/prometheus"

// Metrics of auditing, under the names that Kubernetes has for them.
type Metrics struct {
	events   prometheus.Counter
	errors   *prometheus.CounterVec
	rejected prometheus.Counter
	levels   [RequestResponse + 1]prometheus.Counter
	reloads  *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	levels := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_audit_level_total", Help: "[ALPHA] Requests by the level that the policy tells them at.",
	}, []string{"level"})
	m := &Metrics{
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_audit_event_total", Help: "[ALPHA] Audit events that were made and handed to the backends.",
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_audit_error_total", Help: "[ALPHA] Audit events that a backend did not take, by the part of it that failed.",
		}, []string{"plugin"}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_audit_requests_rejected_total", Help: "[ALPHA] Requests that were refused because they could not be audited.",
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "binnacle_audit_policy_reloads_total", Help: "Changes of the audit policy file, by whether they were taken up.",
		}, []string{"status"}),
	}
	for l := range m.levels {
		m.levels[l] = levels.WithLabelValues(Level(l).String())
	}
	r.MustRegister(m.events, m.errors, m.rejected, levels, m.reloads)
	return m
}

// Failed counts events that a part of a backend did not take.
func (m *Metrics) Failed(plugin string, events int) {
	m.errors.WithLabelValues(plugin).Add(float64(events))
}
