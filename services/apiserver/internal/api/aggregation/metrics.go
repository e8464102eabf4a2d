package aggregation

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// Metrics holds the metrics of the aggregator, under the names of Kubernetes.
type Metrics struct {
	gauge   *prometheus.GaugeVec
	counter *prometheus.CounterVec
	// unreachable has the value 1 for servers whose circuit breaker is open.
	unreachable               *prometheus.GaugeVec
	missingSAN, sha1, merging prometheus.Counter

	mu       sync.Mutex         // leaf lock
	exported map[string]float64 // last values of gauge
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aggregator_unavailable_apiservice", Help: "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.",
		}, []string{"name"}),
		counter: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aggregator_unavailable_apiservice_total", Help: "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
		}, []string{"name", "reason"}),
		unreachable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "binnacle_apiservice_unreachable", Help: "Whether the server of an APIService is unreachable: requests are rejected until a probe succeeds.",
		}, []string{"name"}),
		missingSAN: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_kube_aggregator_x509_missing_san_total",
			Help: "[ALPHA] Counts the number of requests to servers missing SAN extension in their serving certificate OR the number of connection failures due to the lack of x509 certificate SAN extension missing (either/or, based on the runtime environment)",
		}),
		sha1: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_kube_aggregator_x509_insecure_sha1_total",
			Help: "[ALPHA] Counts the number of requests to servers with insecure SHA1 signatures in their serving certificate OR the number of connection failures due to the insecure SHA1 signatures (either/or, based on the runtime environment)",
		}),
		merging: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "aggregator_discovery_aggregation_count_total", Help: "[ALPHA] Counter of number of times discovery was aggregated",
		}),
		exported: map[string]float64{},
	}
	r.MustRegister(m.gauge, m.counter, m.unreachable, m.missingSAN, m.sha1, m.merging)
	return m
}

// setUnreachable reports whether the circuit breaker of a server is open.
func (m *Metrics) setUnreachable(name string, open bool) {
	if open {
		m.unreachable.WithLabelValues(name).Set(1)
	} else {
		m.unreachable.DeleteLabelValues(name)
	}
}

// certificateRejected counts deficient certificates of servers.
func (m *Metrics) certificateRejected(err error) {
	webhookclient.CountCertificateErrors(err, m.missingSAN, m.sha1)
}

func (m *Metrics) failed(name, reason string) { m.counter.WithLabelValues(name, reason).Inc() }

// unavailable updates the gauge of unavailable servers.
func (m *Metrics) unavailable(d *directory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := make(map[string]float64, len(d.local)+len(d.remotes))
	set := func(name string, v float64) {
		now[name] = v
		if was, ok := m.exported[name]; !ok || was != v { // most values have not changed
			m.gauge.WithLabelValues(name).Set(v)
		}
	}
	for _, name := range d.local {
		set(name, 0)
	}
	for _, r := range d.remotes {
		switch {
		case r.lastCheck.Load() == nil:
		case r.available():
			set(r.name, 0)
		default:
			set(r.name, 1)
		}
	}
	for name := range m.exported {
		if _, ok := now[name]; !ok {
			m.gauge.DeleteLabelValues(name)
			m.counter.DeletePartialMatch(prometheus.Labels{"name": name})
		}
	}
	m.exported = now
}
