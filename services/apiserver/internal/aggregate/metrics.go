package aggregate

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Metrics of the aggregator, under the names that Kubernetes has for them.
type Metrics struct {
	gauge   *prometheus.GaugeVec
	counter *prometheus.CounterVec

	mu    sync.Mutex // a leaf
	shown map[string]bool
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
		shown: map[string]bool{},
	}
	r.MustRegister(m.gauge, m.counter)
	return m
}

func (m *Metrics) failed(name, reason string) { m.counter.WithLabelValues(name, reason).Inc() }

// unavailable shows which servers are there.
func (m *Metrics) unavailable(remotes map[schema.GroupVersion]*remote) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := map[string]bool{}
	for _, r := range remotes {
		if r.found.Load() == nil {
			continue
		}
		now[r.name] = true
		v := 1.0
		if r.available() {
			v = 0
		}
		m.gauge.WithLabelValues(r.name).Set(v)
	}
	for name := range m.shown {
		if !now[name] {
			m.gauge.DeleteLabelValues(name)
		}
	}
	m.shown = now
}
