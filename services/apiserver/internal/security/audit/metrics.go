package audit

import "github.com/prometheus/client_golang/prometheus"

// Metrics holds the metrics of auditing, named as in Kubernetes.
type Metrics struct {
	events   prometheus.Counter
	errors   *prometheus.CounterVec
	rejected prometheus.Counter
	levels   [RequestResponse + 1]prometheus.Counter
	reloads  *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	levels := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_audit_level_total",
		Help: "[ALPHA] Number of requests by audit level.",
	}, []string{"level"})
	metrics := &Metrics{
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_audit_event_total",
			Help: "[ALPHA] Number of audit events emitted to the backends.",
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_audit_error_total",
			Help: "[ALPHA] Number of audit events lost, by the plugin that failed.",
		}, []string{"plugin"}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_audit_requests_rejected_total",
			Help: "[ALPHA] Number of requests rejected because their audit event could not be recorded.",
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "binnacle_audit_policy_reloads_total",
			Help: "Number of reloads of the audit policy file by status.",
		}, []string{"status"}),
	}
	for l := range metrics.levels {
		metrics.levels[l] = levels.WithLabelValues(Level(l).String())
	}
	registerer.MustRegister(metrics.events, metrics.errors, metrics.rejected, levels, metrics.reloads)
	return metrics
}

// Failed counts events that a plugin lost.
func (m *Metrics) Failed(plugin string, events int) {
	m.errors.WithLabelValues(plugin).Add(float64(events))
}
