package kms

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Metrics holds the metrics of all plugins.
type Metrics struct {
	latency            *prometheus.HistogramVec
	keyIDs             *prometheus.CounterVec
	keyIDLast          *prometheus.GaugeVec
	statusLast         *prometheus.GaugeVec
	invalidKeyIDs      *prometheus.CounterVec
	cacheSize          *prometheus.GaugeVec
	cacheFill          prometheus.Gauge
	generationDuration prometheus.Histogram
	generationFailures prometheus.Counter
	cacheMisses        prometheus.Counter
	// recentUses and recentStatusKeys bound the keys with samples: plugins choose the IDs.
	recentUses, recentStatusKeys *lru.Cache[keyLabels, struct{}]
	namingMu                     sync.Mutex // held while these caches and the samples change
}

// maxSeries bounds the keys that have samples: the most recently used ones, as in Kubernetes.
const maxSeries = 100

// keyLabels holds the labels of a sample.
type keyLabels struct{ direction, provider, key, server string }

// NewMetrics returns the metrics and registers them.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	const envelope, store = "apiserver_envelope_encryption_", "apiserver_storage_"
	metrics := &Metrics{
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    envelope + "kms_operations_latency_seconds",
			Help:    "Latency in seconds of calls to KMS plugins, by method and gRPC code.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 19),
		}, []string{"provider_name", "method_name", "grpc_status_code"}),
		keyIDs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: envelope + "key_id_hash_total",
			Help: "Number of uses of a key of a KMS plugin, by hash of the key ID.",
		}, []string{"transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"}),
		keyIDLast: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: envelope + "key_id_hash_last_timestamp_seconds",
			Help: "Unix timestamp in seconds of the last use of a key of a KMS plugin.",
		}, []string{"transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"}),
		statusLast: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: envelope + "key_id_hash_status_last_timestamp_seconds",
			Help: "Unix timestamp in seconds of the last status of a KMS plugin with a key.",
		}, []string{"provider_name", "key_id_hash", "apiserver_id_hash"}),
		invalidKeyIDs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: envelope + "invalid_key_id_from_status_total",
			Help: "Invalid key IDs in statuses of KMS plugins, by error.",
		}, []string{"provider_name", "error"}),
		cacheSize: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: envelope + "dek_source_cache_size",
			Help: "Cached decrypted keys of KMS version 2.",
		}, []string{"provider_name"}),
		cacheFill: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: envelope + "dek_cache_fill_percent",
			Help: "[ALPHA] Fill level in percent of the key cache of KMS version 1.",
		}),
		generationDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    store + "data_key_generation_duration_seconds",
			Help:    "[ALPHA] Time in seconds to generate a data key.",
			Buckets: prometheus.ExponentialBuckets(5e-6, 2, 14),
		}),
		generationFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: store + "data_key_generation_failures_total",
			Help: "[ALPHA] Number of failures to generate a data encryption key.",
		}),
		cacheMisses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: store + "envelope_transformation_cache_misses_total",
			Help: "[ALPHA] Number of data keys of KMS version 1 that were not cached and had to be decrypted by the plugin.",
		}),
	}
	var err error
	if metrics.recentUses, err = lru.NewWithEvict(maxSeries, func(s keyLabels, _ struct{}) {
		metrics.keyIDs.DeleteLabelValues(s.direction, s.provider, s.key, s.server)
		metrics.keyIDLast.DeleteLabelValues(s.direction, s.provider, s.key, s.server)
	}); err != nil {
		return nil, err
	}
	if metrics.recentStatusKeys, err = lru.NewWithEvict(maxSeries, func(s keyLabels, _ struct{}) {
		metrics.statusLast.DeleteLabelValues(s.provider, s.key, s.server)
	}); err != nil {
		return nil, err
	}
	for _, c := range []prometheus.Collector{
		metrics.latency, metrics.keyIDs, metrics.keyIDLast, metrics.statusLast, metrics.invalidKeyIDs, metrics.cacheSize, metrics.cacheFill, metrics.generationDuration,
		metrics.generationFailures, metrics.cacheMisses,
	} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of KMS plugins: %w", err)
		}
	}
	return metrics, nil
}

// Hash returns the form of a name in metrics and messages: names may be confidential.
func Hash(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name)))
}

// interceptor returns an interceptor that records the duration and result of calls to a plugin.
func (m *Metrics) interceptor(provider string) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context,
		method string,
		req, reply any,
		cc *grpc.ClientConn,
		call grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		start := time.Now()
		err := call(ctx, method, req, reply, cc, opts...)
		m.latency.WithLabelValues(provider, method, status.Code(err).String()).Observe(time.Since(start).Seconds())
		return err
	}
}

// Directions of a transformation, in metrics.
const (
	FromStorage = "from_storage"
	ToStorage   = "to_storage"
)

// recordUse records the use of a key.key and server are hashes of IDs.
func (m *Metrics) recordUse(direction, provider, key, server string) {
	m.namingMu.Lock()
	defer m.namingMu.Unlock()
	m.recentUses.Add(keyLabels{direction, provider, key, server}, struct{}{})
	m.keyIDs.WithLabelValues(direction, provider, key, server).Inc()
	m.keyIDLast.WithLabelValues(direction, provider, key, server).SetToCurrentTime()
}

// recordStatusKey records that the status of a plugin named a key.
func (m *Metrics) recordStatusKey(provider, key, server string) {
	m.namingMu.Lock()
	defer m.namingMu.Unlock()
	m.recentStatusKeys.Add(keyLabels{provider: provider, key: key, server: server}, struct{}{})
	m.statusLast.WithLabelValues(provider, key, server).SetToCurrentTime()
}

// generateKey generates the random bytes of a key.
func (m *Metrics) generateKey(key []byte, read func([]byte) (int, error)) error {
	start := time.Now()
	if _, err := read(key); err != nil {
		m.generationFailures.Inc()
		return fmt.Errorf("draw a key: %w", err)
	}
	m.generationDuration.Observe(time.Since(start).Seconds())
	return nil
}
