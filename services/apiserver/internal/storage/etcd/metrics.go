package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	servingmetrics "binnacle/libs/serving/metrics"
	"binnacle/services/apiserver/internal/storage"
)

// metrics holds the metrics of a store. It uses the names that dashboards for Kubernetes expect.
type metrics struct {
	prefix       string
	series       *servingmetrics.Series[seriesKey, *operationSeries]
	leaseObjects prometheus.Histogram
}

// seriesKey holds the labels of the metrics of requests.
type seriesKey struct{ operation, kind string }

// operationSeries holds the metrics of an operation on a type of objects.
type operationSeries struct {
	duration prometheus.Observer // nil for watches
	requests prometheus.Counter
	// errors returns the counter of errors, which exists only after the first error.
	errors func() prometheus.Counter
}

// maxSeries bounds the combinations of operation and type.
const maxSeries = 5000

// newMetrics returns the metrics of a store. It registers them unless reg is nil.
func newMetrics(reg prometheus.Registerer, prefix string, size sizeCollector, cluster *memberCollector) (*metrics, error) {
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
	created := &metrics{
		prefix: strings.TrimRight(prefix, "/") + "/",
		leaseObjects: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "etcd_lease_object_counts",
			Help:    "[ALPHA] Number of objects attached to a single etcd lease.",
			Buckets: []float64{10, 50, 100, 500, 1000, 2500, 5000},
		}),
	}
	created.series = servingmetrics.NewSeries(servingmetrics.SeriesConfig[seriesKey, *operationSeries]{
		Limit:    maxSeries,
		Overflow: func(key seriesKey) seriesKey { return seriesKey{key.operation, "other"} },
		Add: func(key seriesKey) *operationSeries {
			added := &operationSeries{requests: requests.WithLabelValues(key.operation, key.kind)}
			added.errors = func() prometheus.Counter { return failures.WithLabelValues(key.operation, key.kind) }
			if key.operation != watchOperation {
				added.duration = duration.WithLabelValues(key.operation, key.kind)
			}
			return added
		},
		Remove: func(key seriesKey) {
			for _, vector := range []interface{ DeleteLabelValues(...string) bool }{duration, requests, failures} {
				vector.DeleteLabelValues(key.operation, key.kind)
			}
		},
	})
	if reg == nil {
		return created, nil
	}
	err := created.series.Register(reg, duration, requests, failures)
	collectors := []prometheus.Collector{created.leaseObjects, size}
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
	return created, nil
}

// KeepSeriesWhile removes the series of custom resources that are no longer defined. The types of
// custom resources start with their group, which contains a dot.
func (s *Store) KeepSeriesWhile(served func() func(schema.GroupResource) bool) {
	s.metrics.series.KeepWhile(func() func(seriesKey) bool {
		live := served()
		return func(key seriesKey) bool {
			group, resource, ok := strings.Cut(key.kind, "/")
			return !ok || !strings.Contains(group, ".") || live(schema.GroupResource{Group: group, Resource: resource})
		}
	})
}

// observe records an operation. Callers defer it at the start of the operation: err points to the
// operation's named result.
func (m *metrics) observe(operation, key string, start time.Time, err *error) {
	series := m.series.WithLabels(seriesKey{operation, m.typeSegment(key)})
	series.duration.Observe(time.Since(start).Seconds())
	series.requests.Inc()
	if isFailure(*err) {
		series.errors().Inc()
	}
}

// watchOperation is the operation of watches, which have no duration.
const watchOperation = "watch"

// recordWatch counts the start of a watch.
func (m *metrics) recordWatch(prefix string) {
	m.series.WithLabels(seriesKey{watchOperation, m.typeSegment(prefix)}).requests.Inc()
}

// isFailure reports whether an operation failed, in contrast to a negative result.
func isFailure(err error) bool {
	var tooOld *storage.CompactedError
	var tooNew *storage.FutureError
	return errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrTooLarge) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.As(err, &tooOld) || errors.As(err, &tooNew)
}

// typeSegment returns the part of a key that names the type of its value: the segment below the
// root, or two segments if the first is a group or one of the historical double names. It is a
// substring of the key, so nothing is allocated. Below the root "/registry/":
//
//	/registry/pods/ns/a               -> pods
//	/registry/services/specs/ns/a     -> services/specs
//	/registry/example.com/things/ns/a -> example.com/things
func (m *metrics) typeSegment(key string) string {
	path, ok := strings.CutPrefix(key, m.prefix)
	if !ok || path == "" {
		return "other"
	}
	first, remaining, more := strings.Cut(path, "/")
	if !more || (first != "services" && !strings.Contains(first, ".")) {
		return first
	}
	second, _, _ := strings.Cut(remaining, "/")
	if second == "" {
		return first
	}
	return path[:len(first)+1+len(second)]
}

// memberCollector collects the metrics of the members of a cluster, which are read on each scrape.
// They let a replica report on etcd where nothing else reaches it. A member that does not respond
// within sizeTimeout counts as down.
type memberCollector struct {
	client  *clientv3.Client
	cluster string
	log     *slog.Logger

	responding, leader, size, used, quota, alarm *prometheus.Desc
}

// newMemberCollector describes the metrics of the members of a cluster.
func newMemberCollector(client *clientv3.Client, cluster string, log *slog.Logger) *memberCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("binnacle_etcd_member_"+name,
			help, append([]string{"storage_cluster_id", "endpoint"}, labels...), nil)
	}
	return &memberCollector{
		client:     client,
		cluster:    cluster,
		log:        log,
		responding: desc("up", "1 if the etcd member responds to this replica, 0 otherwise."),
		leader:     desc("leader", "1 if the etcd member leads its cluster, 0 otherwise."),
		size:       desc("size_bytes", "Size in bytes of the etcd member's database file."),
		used:       desc("used_bytes", "Used bytes of the etcd member's database. Defragmentation frees the rest of the file."),
		quota: desc("quota_bytes",
			"Database size in bytes at which the etcd member rejects writes. Absent if etcd does not report it (before 3.6)."),
		alarm: desc("alarm", "1 for each active alarm that the etcd member reports, such as NOSPACE and CORRUPT.", "alarm"),
	}
}

// Describe implements prometheus.Collector.
func (m *memberCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.responding, m.leader, m.size, m.used, m.quota, m.alarm} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *memberCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), sizeTimeout)
	defer cancel()
	var group sync.WaitGroup
	for _, endpoint := range m.client.Endpoints() {
		group.Go(func() { m.collectMember(ctx, endpoint, out) })
	}
	group.Wait()
}

// collectMember reads the metrics of one member.
func (m *memberCollector) collectMember(ctx context.Context, endpoint string, out chan<- prometheus.Metric) {
	sendGauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{m.cluster, endpoint}, labels...)...)
	}
	status, err := m.client.Status(ctx, endpoint)
	if err != nil {
		m.log.Debug("the status of an etcd member is not known", "endpoint", endpoint, "error", err)
		sendGauge(m.responding, 0)
		return
	}
	sendGauge(m.responding, 1)
	leads := 0.0
	if status.Leader == status.Header.MemberId {
		leads = 1
	}
	sendGauge(m.leader, leads)
	sendGauge(m.size, float64(status.DbSize))
	sendGauge(m.used, float64(status.DbSizeInUse))
	if status.DbSizeQuota > 0 {
		sendGauge(m.quota, float64(status.DbSizeQuota))
	}
	for alarm := range alarmsOf(status.Errors) {
		sendGauge(m.alarm, 1, alarm)
	}
}

// alarmsOf returns the names of the alarms in the errors of a status, which look like
// "memberID:8211f1d0f64f3269 alarm:NOSPACE ".
func alarmsOf(errs []string) map[string]bool {
	out := map[string]bool{}
	for _, e := range errs {
		for _, field := range strings.Fields(e) {
			if name, ok := strings.CutPrefix(field, "alarm:"); ok {
				out[name] = true
			}
		}
	}
	return out
}

// sizeTimeout bounds how long a scrape of metrics waits for etcd.
const sizeTimeout = 2 * time.Second

// mainCluster is the default name of the cluster in the metric.
const mainCluster = "etcd-0"

// sizeCollector collects the database size, which is read on each scrape. The metric is absent
// while etcd does not respond.
type sizeCollector struct {
	size    func(context.Context) (int64, error)
	log     *slog.Logger
	cluster string
}

func sizeDesc() *prometheus.Desc {
	return prometheus.NewDesc("apiserver_storage_size_bytes",
		"[STABLE] Size in bytes of the store's database file, as reported by one of its servers.",
		[]string{"storage_cluster_id"}, nil)
}

// Describe implements prometheus.Collector.
func (sizeCollector) Describe(out chan<- *prometheus.Desc) { out <- sizeDesc() }

// Collect implements prometheus.Collector.
func (d sizeCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), sizeTimeout)
	defer cancel()
	size, err := d.size(ctx)
	if err != nil {
		d.log.Debug("the size of the database is not known", "error", err)
		return
	}
	out <- prometheus.MustNewConstMetric(sizeDesc(), prometheus.GaugeValue, float64(size), d.cluster)
}

// sizeOf reads the size from a random server of a client.
func sizeOf(ctx context.Context, c *clientv3.Client) (int64, error) {
	endpoints := c.Endpoints()
	if len(endpoints) == 0 {
		return 0, errors.New("the client has no servers")
	}
	response, err := c.Status(ctx, endpoints[rand.IntN(len(endpoints))])
	if err != nil {
		return 0, err
	}
	return response.DbSize, nil
}
