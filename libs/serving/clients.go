package serving

import (
	"github.com/prometheus/client_golang/prometheus"
)

// clientMetrics tell of clients that are made to wait.
type clientMetrics struct {
	resets, control      prometheus.Counter // seconds
	shaken, failed, late prometheus.Counter
	waiting              prometheus.Gauge
	errors               prometheus.Counter // failed and late ones, or nil
}

// newClientMetrics registers the metrics, unless the registerer is nil.
func newClientMetrics(r prometheus.Registerer) (*clientMetrics, error) {
	delayed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "binnacle_http2_delayed_seconds_total",
		Help: "How long connections of HTTP/2 were not read from because the client sent too many resets or control frames.",
	}, []string{"frames"})
	handshakes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "binnacle_tls_handshakes_total",
		Help: "TLS handshakes with clients, by result: ok, failed, late.",
	}, []string{"result"})
	waiting := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "binnacle_tls_handshakes_waiting",
		Help: "TLS handshakes whose client waits until it is the turn of its address.",
	})
	m := &clientMetrics{
		resets: delayed.WithLabelValues("resets"), control: delayed.WithLabelValues("control"),
		shaken: handshakes.WithLabelValues("ok"), failed: handshakes.WithLabelValues("failed"), late: handshakes.WithLabelValues("late"),
		waiting: waiting,
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{delayed, handshakes, waiting} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
