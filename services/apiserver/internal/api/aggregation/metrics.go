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
	// unasked marks servers whose breaker is open.
	unasked                   *prometheus.GaugeVec
	missingSAN, sha1, merging prometheus.Counter

	mu    sync.Mutex // leaf lock
	shown map[string]float64
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
		unasked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "binnacle_apiservice_unreachable", Help: "APIServices whose server is not asked until it answers again.",
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
		shown: map[string]float64{},
	}
	r.MustRegister(m.gauge, m.counter, m.unasked, m.missingSAN, m.sha1, m.merging)
	return m
}

func (m *Metrics) open(name string, is bool) {
	if is {
		m.unasked.WithLabelValues(name).Set(1)
	} else {
		m.unasked.DeleteLabelValues(name)
	}
}

// refused counts flaws of a server's certificate.
func (m *Metrics) refused(err error) { webhookclient.CountCertificateErrors(err, m.missingSAN, m.sha1) }

func (m *Metrics) failed(name, reason string) { m.counter.WithLabelValues(name, reason).Inc() }

// unavailable updates the gauge of unavailable servers.
func (m *Metrics) unavailable(d *directory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := make(map[string]float64, len(d.ours)+len(d.remotes))
	show := func(name string, v float64) {
		now[name] = v
		if was, ok := m.shown[name]; !ok || was != v { // most values have not changed
			m.gauge.WithLabelValues(name).Set(v)
		}
	}
	for _, name := range d.ours {
		show(name, 0)
	}
	for _, r := range d.remotes {
		switch {
		case r.found.Load() == nil:
		case r.available():
			show(r.name, 0)
		default:
			show(r.name, 1)
		}
	}
	for name := range m.shown {
		if _, ok := now[name]; !ok {
			m.gauge.DeleteLabelValues(name)
			m.counter.DeletePartialMatch(prometheus.Labels{"name": name})
		}
	}
	m.shown = now
}
