package authnconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of the configuration and of authenticated tokens. A nil value counts
// nothing.
type Metrics struct {
	instance string
	reloads  *prometheus.CounterVec
	last     *prometheus.GaugeVec
	latency  *prometheus.HistogramVec
}

// NewMetrics registers the metrics. instance distinguishes the process from others of its service;
// metrics contain only its hash.
func NewMetrics(registerer prometheus.Registerer, instance string) *Metrics {
	const namespace, subsystem = "apiserver", "authentication_config_controller"
	metrics := &Metrics{
		instance: hashLabel(instance),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "automatic_reloads_total",
			Help: "[ALPHA] Number of reloads of the authentication configuration, by outcome and server.",
		}, []string{"apiserver_id_hash", "status"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "automatic_reload_last_timestamp_seconds",
			Help: "[ALPHA] Unix timestamp in seconds of the last reload of the authentication configuration, by outcome and server.",
		}, []string{"apiserver_id_hash", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: "authentication", Name: "jwt_authenticator_latency_seconds",
			Help:    "[ALPHA] Latency of JWT authentication operations in seconds, by result and issuer.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
		}, []string{"result", "jwt_issuer_hash"}),
	}
	registerer.MustRegister(metrics.reloads, metrics.last, metrics.latency)
	return metrics
}

// hashLabel returns the SHA-256 of s for a label, as kube-apiserver writes it.
func hashLabel(s string) string {
	if s == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// resultLabel returns the value of the labels status and result.
func resultLabel(ok bool) string {
	if ok {
		return "success"
	}
	return "failure"
}

// recordReload counts a reload of the configuration.
func (m *Metrics) recordReload(ok bool) {
	if m == nil {
		return
	}
	m.reloads.WithLabelValues(m.instance, resultLabel(ok)).Inc()
	m.last.WithLabelValues(m.instance, resultLabel(ok)).SetToCurrentTime()
}

// recordAuthentication observes the authentication of a token of an issuer.
func (m *Metrics) recordAuthentication(issuer string, ok bool, duration time.Duration) {
	if m == nil {
		return
	}
	m.latency.WithLabelValues(resultLabel(ok), hashLabel(issuer)).Observe(duration.Seconds())
}
