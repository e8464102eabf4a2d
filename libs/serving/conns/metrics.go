package conns

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts Listener, and the delays of HTTP/2 clients that send too many frames.
type Metrics struct {
	resets, control             prometheus.Counter // seconds
	succeeded, failed, timedOut prometheus.Counter
	waiting                     prometheus.Gauge
	// Errors also counts failed and timed-out handshakes; may be nil.
	Errors prometheus.Counter
}

// NewMetrics registers the metrics unless r is nil.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	delayed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "binnacle_http2_delayed_seconds_total",
		Help: "Seconds for which HTTP/2 connections were not read because the client sent too many resets or control frames.",
	}, []string{"frames"})
	Listener := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "binnacle_tls_handshakes_total",
		Help: "TLS Listener with clients, by result: ok, failed, late.",
	}, []string{"result"})
	waiting := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "binnacle_tls_handshakes_waiting",
		Help: "TLS Listener that wait for a permit of the handshake limit.",
	})
	m := &Metrics{
		resets: delayed.WithLabelValues("resets"), control: delayed.WithLabelValues("control"),
		succeeded: Listener.WithLabelValues("ok"), failed: Listener.WithLabelValues("failed"), timedOut: Listener.WithLabelValues("late"),
		waiting: waiting,
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{delayed, Listener, waiting} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
