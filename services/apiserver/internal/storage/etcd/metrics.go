package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/storage"
)

// metrics under the names that dashboards for Kubernetes know.
type metrics struct {
	prefix       string
	duration     *prometheus.HistogramVec
	requests     *prometheus.CounterVec
	errors       *prometheus.CounterVec
	leaseObjects prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, prefix string, size databaseSize) (*metrics, error) {
	labels := []string{"operation", "type"}
	m := &metrics{
		prefix: strings.TrimRight(prefix, "/") + "/",
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "etcd_request_duration_seconds",
			Help: "[ALPHA] Etcd request latency in seconds for each operation and object type.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3,
				4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		}, labels),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_requests_total",
			Help: "[ALPHA] Etcd request counts for each operation and object type.",
		}, labels),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_request_errors_total",
			Help: "[ALPHA] Etcd failed request counts for each operation and object type.",
		}, labels),
		leaseObjects: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "etcd_lease_object_counts",
			Help:    "[ALPHA] Number of objects attached to a single etcd lease.",
			Buckets: []float64{10, 50, 100, 500, 1000, 2500, 5000},
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.duration, m.requests, m.errors, m.leaseObjects, size} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("etcd metrics: %w", err)
		}
	}
	return m, nil
}

// observe is deferred at the start of an operation.
func (m *metrics) observe(operation, key string, start time.Time, err *error) {
	kind := m.kind(key)
	m.duration.WithLabelValues(operation, kind).Observe(time.Since(start).Seconds())
	m.requests.WithLabelValues(operation, kind).Inc()
	if failed(*err) {
		m.errors.WithLabelValues(operation, kind).Inc()
	}
}

// failed tells an operation that went wrong from one whose answer is no.
func failed(err error) bool {
	var tooOld *storage.CompactedError
	var tooNew *storage.FutureError
	return errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrTooLarge) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.As(err, &tooOld) || errors.As(err, &tooNew)
}

// kind is the part of a key that names the type of its value: the segment
// below the root, or two of them where the first is a group or one of the
// historical double names. It is a part of the key, so nothing is allocated.
func (m *metrics) kind(key string) string {
	rest, ok := strings.CutPrefix(key, m.prefix)
	if !ok || rest == "" {
		return "other"
	}
	first, tail, more := strings.Cut(rest, "/")
	if !more || (first != "services" && !strings.Contains(first, ".")) {
		return first
	}
	second, _, _ := strings.Cut(tail, "/")
	if second == "" {
		return first
	}
	return rest[:len(first)+1+len(second)]
}
