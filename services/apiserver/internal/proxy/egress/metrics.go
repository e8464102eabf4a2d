package egress

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics holds the metrics of dials.
type metrics struct {
	starts, failures *prometheus.CounterVec
	duration         *prometheus.HistogramVec
}

// newMetrics registers the metrics.
func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	created := &metrics{
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_egress_dialer_dial_start_total",
			Help: "[ALPHA] Connections started through a proxy, by its protocol (http_connect or grpc) and transport (tcp or uds).",
		}, []string{"protocol", "transport"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_egress_dialer_dial_failure_count",
			Help: "[ALPHA] Failed connections through a proxy, by its protocol, transport and stage: connect for the connection to the proxy, proxy for its response.",
		}, []string{"protocol", "transport", "stage"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_egress_dialer_dial_duration_seconds",
			Help:    "[ALPHA] Latency of opening connections through a proxy in seconds, by its protocol and transport.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 2.5, 12.5},
		}, []string{"protocol", "transport"}),
	}
	return created, errors.Join(registerer.Register(created.starts), registerer.Register(created.failures), registerer.Register(created.duration))
}
