package conns

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts handshakes, and the delays of HTTP/2 clients that send too many frames.
type Metrics struct {
	resetDelay, controlDelay    prometheus.Counter // seconds
	succeeded, failed, timedOut prometheus.Counter
	waitingHandshakes           prometheus.Gauge
	// Errors also counts failed and timed-out handshakes; may be nil.
	Errors prometheus.Counter
}

// NewMetrics registers the metrics unless registerer is nil.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	delayed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "binnacle_http2_delayed_seconds_total",
		Help: "Time in seconds for which HTTP/2 connections were throttled because of too many resets or control frames.",
	}, []string{"frames"})
	handshakes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "binnacle_tls_handshakes_total",
		Help: "Number of TLS handshakes with clients, by result: ok, failed, late.",
	}, []string{"result"})
	waiting := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "binnacle_tls_handshakes_waiting",
		Help: "Number of TLS handshakes waiting for the handshake limit.",
	})
	metrics := &Metrics{
		resetDelay: delayed.WithLabelValues("resets"), controlDelay: delayed.WithLabelValues("control"),
		succeeded:         handshakes.WithLabelValues("ok"),
		failed:            handshakes.WithLabelValues("failed"),
		timedOut:          handshakes.WithLabelValues("late"),
		waitingHandshakes: waiting,
	}
	if registerer == nil {
		return metrics, nil
	}
	for _, c := range []prometheus.Collector{delayed, handshakes, waiting} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return metrics, nil
}
