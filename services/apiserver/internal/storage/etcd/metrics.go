package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	servingmetrics "binnacle/libs/serving/metrics"
	"binnacle/services/apiserver/internal/storage"
)

// metrics uses the names that dashboards for Kubernetes expect.
type metrics struct {
	prefix       string
	series       *servingmetrics.Series[seriesKey, *series]
	leaseObjects prometheus.Histogram
}

type seriesKey struct{ operation, kind string }

// series holds the metrics of an operation on a type of objects.
type series struct {
	duration prometheus.Observer // nil for watches
	requests prometheus.Counter
	// errors returns the counter of errors, which exists only after the first error.
	errors func() prometheus.Counter
}

// maxSeries bounds the combinations of operation and type.
const maxSeries = 5000

func newMetrics(reg prometheus.Registerer, prefix string, size databaseSize, cluster *members) (*metrics, error) {
	labels := []string{"operation", "type"}
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "etcd_request_duration_seconds",
		Help: "[ALPHA] Etcd request latency in seconds for each operation and object type.",
		Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3,
			4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
	}, labels)
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "etcd_requests_total",
		Help: "[ALPHA] Etcd request counts for each operation and object type.",
	}, labels)
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "etcd_request_errors_total",
		Help: "[ALPHA] Etcd failed request counts for each operation and object type.",
	}, labels)
	m := &metrics{
		prefix: strings.TrimRight(prefix, "/") + "/",
		leaseObjects: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "etcd_lease_object_counts",
			Help:    "[ALPHA] Number of objects attached to a single etcd lease.",
			Buckets: []float64{10, 50, 100, 500, 1000, 2500, 5000},
		}),
	}
	m.series = servingmetrics.NewSeries(servingmetrics.SeriesConfig[seriesKey, *series]{
		Limit: maxSeries, Overflow: func(k seriesKey) seriesKey { return seriesKey{k.operation, "other"} },
		Add: func(k seriesKey) *series {
			s := &series{requests: requests.WithLabelValues(k.operation, k.kind)}
			s.errors = func() prometheus.Counter { return failures.WithLabelValues(k.operation, k.kind) }
			if k.operation != watchOperation {
				s.duration = duration.WithLabelValues(k.operation, k.kind)
			}
			return s
		},
		Remove: func(k seriesKey) {
			for _, v := range []interface{ DeleteLabelValues(...string) bool }{duration, requests, failures} {
				v.DeleteLabelValues(k.operation, k.kind)
			}
		},
	})
	if reg == nil {
		return m, nil
	}
	err := m.series.Register(reg, duration, requests, failures)
	collectors := []prometheus.Collector{m.leaseObjects, size}
	if cluster != nil {
		collectors = append(collectors, cluster)
	}
	for _, c := range collectors {
		if err == nil {
			err = reg.Register(c)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("etcd metrics: %w", err)
	}
	return m, nil
}

// KeepSeriesWhile removes the series of custom resources that are no longer defined. The types of
// custom resources begin with their group, which contains a dot.
func (s *Store) KeepSeriesWhile(served func() func(schema.GroupResource) bool) {
	s.metrics.series.KeepWhile(func() func(seriesKey) bool {
		live := served()
		return func(k seriesKey) bool {
			group, resource, ok := strings.Cut(k.kind, "/")
			return !ok || !strings.Contains(group, ".") || live(schema.GroupResource{Group: group, Resource: resource})
		}
	})
}

// observe is deferred at the start of an operation.
func (m *metrics) observe(operation, key string, start time.Time, err *error) {
	s := m.series.Of(seriesKey{operation, m.kind(key)})
	s.duration.Observe(time.Since(start).Seconds())
	s.requests.Inc()
	if failed(*err) {
		s.errors().Inc()
	}
}

// watchOperation is the operation of watches, which have no duration.
const watchOperation = "watch"

// watched counts the start of a watch.
func (m *metrics) watched(prefix string) {
	m.series.Of(seriesKey{watchOperation, m.kind(prefix)}).requests.Inc()
}

// failed reports whether an operation failed, in contrast to a negative result.
func failed(err error) bool {
	var tooOld *storage.CompactedError
	var tooNew *storage.FutureError
	return errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrTooLarge) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.As(err, &tooOld) || errors.As(err, &tooNew)
}

// kind returns the part of a key that names the type of its value: the segment below the root, or
// two segments if the first is a group or one of the historical double names. It is a substring of
// the key, so nothing is allocated.
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
