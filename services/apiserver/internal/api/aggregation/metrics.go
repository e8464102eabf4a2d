package aggregation

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// Metrics holds the metrics of the aggregator. Their names are the same as in Kubernetes, except
// for unreachable.
type Metrics struct {
	unavailable  *prometheus.GaugeVec   // 1 for unavailable APIServices, 0 for the others
	failedChecks *prometheus.CounterVec // by APIService and reason
	// unreachable is 1 for servers whose circuit breaker is open.
	unreachable                  *prometheus.GaugeVec
	missingSAN, sha1, aggregated prometheus.Counter

	mu       sync.Mutex         // leaf lock
	exported map[string]float64 // values of unavailable by APIService
}

// NewMetrics creates the metrics and registers them with registerer.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	metrics := &Metrics{
		unavailable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aggregator_unavailable_apiservice",
			Help: "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.",
		}, []string{"name"}),
		failedChecks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aggregator_unavailable_apiservice_total",
			Help: "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
		}, []string{"name", "reason"}),
		unreachable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "binnacle_apiservice_unreachable",
			Help: "Whether the server of an APIService is unreachable: requests are rejected until a probe succeeds.",
		}, []string{"name"}),
		missingSAN: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_kube_aggregator_x509_missing_san_total",
			Help: "[ALPHA] Counts the number of requests to servers missing SAN extension in their serving certificate OR the number of connection failures due to the lack of x509 certificate SAN extension missing (either/or, based on the runtime environment)",
		}),
		sha1: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_kube_aggregator_x509_insecure_sha1_total",
			Help: "[ALPHA] Counts the number of requests to servers with insecure SHA1 signatures in their serving certificate OR the number of connection failures due to the insecure SHA1 signatures (either/or, based on the runtime environment)",
		}),
		aggregated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "aggregator_discovery_aggregation_count_total", Help: "[ALPHA] Counter of number of times discovery was aggregated",
		}),
		exported: map[string]float64{},
	}
	registerer.MustRegister(metrics.unavailable, metrics.failedChecks, metrics.unreachable, metrics.missingSAN, metrics.sha1, metrics.aggregated)
	return metrics
}

// setUnreachable records whether the circuit breaker of a server is open.
func (m *Metrics) setUnreachable(name string, open bool) {
	if open {
		m.unreachable.WithLabelValues(name).Set(1)
	} else {
		m.unreachable.DeleteLabelValues(name)
	}
}

// countCertificateError counts err if it is about a missing SAN or a SHA-1 signature in the
// certificate of a server.
func (m *Metrics) countCertificateError(err error) {
	webhookclient.CountCertificateErrors(err, m.missingSAN, m.sha1)
}

// countFailedCheck counts a check that found the server of an APIService unavailable.
func (m *Metrics) countFailedCheck(name, reason string) {
	m.failedChecks.WithLabelValues(name, reason).Inc()
}

// setUnavailable updates the metric unavailable. It removes the series of deleted APIServices.
func (m *Metrics) setUnavailable(d *directory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := make(map[string]float64, len(d.local)+len(d.remotes))
	set := func(name string, value float64) {
		current[name] = value
		if previous, ok := m.exported[name]; !ok || previous != value { // most values have not changed
			m.unavailable.WithLabelValues(name).Set(value)
		}
	}
	for _, name := range d.local {
		set(name, 0)
	}
	for _, remote := range d.remotes {
		switch {
		case remote.lastCheck.Load() == nil: // unknown until the first check
		case remote.available():
			set(remote.name, 0)
		default:
			set(remote.name, 1)
		}
	}
	for name := range m.exported {
		if _, ok := current[name]; !ok {
			m.unavailable.DeleteLabelValues(name)
			m.failedChecks.DeletePartialMatch(prometheus.Labels{"name": name})
		}
	}
	m.exported = current
}
