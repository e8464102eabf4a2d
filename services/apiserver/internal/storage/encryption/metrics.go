package encryption

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"binnacle/services/apiserver/internal/storage/encryption/kms"
)

// Metrics counts encryption, decryption and reloads of the configuration.
type Metrics struct {
	kms        *kms.Metrics
	operations *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	reloads    *prometheus.CounterVec
	// succeeded and failed are deprecated; reloads has both.
	succeeded, failed *prometheus.CounterVec
	reloadLast        *prometheus.GaugeVec
}

// NewMetrics returns the metrics and registers them.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	const store, controller = "apiserver_storage_transformation_", "apiserver_encryption_config_controller_automatic_"
	metrics := &Metrics{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: store + "operations_total",
			Help: "Encryptions and decryptions of stored values, by provider and outcome.",
		}, []string{"resource", "transformation_type", "transformer_prefix", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    store + "duration_seconds",
			Help:    "Time in seconds to encrypt or decrypt a value.",
			Buckets: prometheus.ExponentialBuckets(5e-6, 2, 25),
		}, []string{"transformation_type", "transformer_prefix"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: controller + "reloads_total",
			Help: "Number of reloads of the encryption configuration, by outcome.",
		}, []string{"status", "apiserver_id_hash"}),
		succeeded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: controller + "reload_success_total",
			Help: "[ALPHA] (Deprecated since 1.30.0) Total number of successful automatic reloads of encryption configuration split by apiserver identity.",
		}, []string{"apiserver_id_hash"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: controller + "reload_failures_total",
			Help: "[ALPHA] (Deprecated since 1.30.0) Total number of failed automatic reloads of encryption configuration split by apiserver identity.",
		}, []string{"apiserver_id_hash"}),
		reloadLast: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: controller + "reload_last_timestamp_seconds",
			Help: "Unix timestamp in seconds of the last reload of the encryption configuration, by outcome.",
		}, []string{"status", "apiserver_id_hash"}),
	}
	for _, c := range []prometheus.Collector{metrics.operations, metrics.durations, metrics.reloads, metrics.succeeded, metrics.failed, metrics.reloadLast} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of encryption: %w", err)
		}
	}
	var err error
	metrics.kms, err = kms.NewMetrics(registerer)
	return metrics, err
}

// recordTransformation counts a transformation.
func (m *Metrics) recordTransformation(resource, direction, prefix string, start time.Time, err error) {
	m.operations.WithLabelValues(resource, direction, prefix, grpcCode(err)).Inc()
	if err == nil {
		m.durations.WithLabelValues(direction, prefix).Observe(time.Since(start).Seconds())
	}
}

// grpcCode returns the gRPC code of the result of a transformation.
func grpcCode(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	var withStatus interface{ GRPCStatus() *grpcstatus.Status }
	if errors.As(err, &withStatus) {
		return withStatus.GRPCStatus().Code().String()
	}
	return codes.Unknown.String()
}

// recordReload counts a reload of the configuration.
func (m *Metrics) recordReload(server string, err error) {
	status, counter := "success", m.succeeded
	if err != nil {
		status = "failure"
		counter = m.failed
	}
	counter.WithLabelValues(kms.Hash(server)).Inc()
	m.reloads.WithLabelValues(status, kms.Hash(server)).Inc()
	m.reloadLast.WithLabelValues(status, kms.Hash(server)).SetToCurrentTime()
}
