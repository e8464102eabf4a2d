package flowcontrol

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const namePrefix = "apiserver_flowcontrol_"

// Metrics are the metrics of flow control, named as in Kubernetes.
type Metrics struct {
	executing, executingSeats, inQueue, inQueueSeats  *prometheus.GaugeVec
	limit, nominal, lower, upper                      *prometheus.GaugeVec
	virtual, dispatchedAt, latest, bounds, discounted *prometheus.GaugeVec
	average, maximum, smoothed, deviation, target     *prometheus.GaugeVec
	dispatchedTotal, rejectedTotal                    *prometheus.CounterVec
	execution, lengths, waited, watches, widths       *prometheus.HistogramVec
	fairFraction                                      prometheus.Gauge
	demandDesc, requestsDesc, seatsDesc, readsDesc    *prometheus.Desc

	mu      sync.Mutex
	levels  map[string]*levelMetrics
	schemas map[schemaBinding]*schemaMetrics
	reads   *ratioGroup // ratios of executing reads, executing writes, waiting reads, waiting writes
	limits  [2]float64  // maximum number of reads and of writes
	clock   func() time.Time
}

var (
	byLevel        = []string{"priority_level"}
	bySchema       = []string{"priority_level", "flow_schema"}
	durationBounds = []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}

	demandRatioBounds  = []float64{0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6}
	requestRatioBounds = []float64{0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1}
	seatRatioBounds    = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}
	readRatioBounds    = []float64{0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}
)

// NewMetrics registers the metrics. maxReads and maxWrites are the denominators of the ratio of
// current reads and writes.
func NewMetrics(registerer prometheus.Registerer, maxReads, maxWrites int, now func() time.Time) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: namePrefix + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: namePrefix + name, Help: help, Buckets: buckets}, labels)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namePrefix+name, help, labels, nil)
	}
	metrics := &Metrics{
		executing: gauge("current_executing_requests",
			"[BETA] Number of running requests, including watches that send initial events.", bySchema...),
		executingSeats: gauge("current_executing_seats", "[BETA] Number of seats of running requests.", bySchema...),
		inQueue:        gauge("current_inqueue_requests", "[BETA] Number of queued requests.", bySchema...),
		inQueueSeats:   gauge("current_inqueue_seats", "[ALPHA] Number of seats that queued requests need.", bySchema...),
		limit:          gauge("current_limit_seats", "[ALPHA] Current limit of a level in seats.", byLevel...),
		nominal:        gauge("nominal_limit_seats", "[BETA] Nominal limit of a level in seats.", byLevel...),
		lower:          gauge("lower_limit_seats", "[ALPHA] Lower limit of a level in seats.", byLevel...),
		upper:          gauge("upper_limit_seats", "[ALPHA] Upper limit of a level in seats.", byLevel...),
		virtual:        gauge("current_r", "[ALPHA] Virtual time of a level, in seat-seconds.", byLevel...),
		dispatchedAt:   gauge("dispatch_r", "[ALPHA] Virtual time at the last dispatch.", byLevel...),
		latest:         gauge("latest_s", "[ALPHA] Virtual start of the last dispatched request.", byLevel...),
		bounds: gauge("next_s_bounds", "[ALPHA] Minimum and maximum over queues of the virtual start of the next request.",
			"bound", "priority_level"),
		discounted: gauge("next_discounted_s_bounds",
			"[ALPHA] Minimum and maximum over queues of the virtual start of the next request, without the estimated work of running requests.",
			"bound", "priority_level"),
		average:   gauge("demand_seats_average", "[ALPHA] Average demand for seats in the last period.", byLevel...),
		maximum:   gauge("demand_seats_high_watermark", "[ALPHA] Maximum demand for seats in the last period.", byLevel...),
		smoothed:  gauge("demand_seats_smoothed", "[ALPHA] Smoothed demand for seats.", byLevel...),
		deviation: gauge("demand_seats_stdev", "[ALPHA] Standard deviation of the demand for seats in the last period.", byLevel...),
		target:    gauge("target_seats", "[ALPHA] Target of the last adjustment in seats.", byLevel...),
		dispatchedTotal: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: namePrefix + "dispatched_requests_total",
			Help: "[BETA] Number of requests executed by API Priority and Fairness.",
		}, bySchema),
		rejectedTotal: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: namePrefix + "rejected_requests_total",
			Help: "[BETA] Number of requests rejected by API Priority and Fairness.",
		}, append(bySchema[:2:2], "reason")),
		execution: histogram("request_execution_seconds",
			"[ALPHA] Execution time of requests in seconds.", durationBounds, append(bySchema[:2:2], "type")...),
		lengths: histogram("request_queue_length_after_enqueue",
			"[ALPHA] Length of a queue after a request was added.", []float64{0, 10, 25, 50, 100, 250, 500, 1000}, bySchema...),
		waited: histogram("request_wait_duration_seconds",
			"[BETA] Wait time of requests in seconds.", durationBounds, append(bySchema[:2:2], "execute")...),
		watches: histogram("watch_count_samples", "[ALPHA] Number of watchers affected by a write.",
			[]float64{0, 1, 10, 100, 1000, 10000}, bySchema...),
		widths: histogram("work_estimated_seats", "[ALPHA] Estimated number of seats per request.",
			[]float64{1, 2, 4, 10}, bySchema...),
		fairFraction: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: namePrefix + "seat_fair_frac",
			Help: "[ALPHA] Fair fraction of the target concurrency of each priority level, computed in the last adjustment.",
		}),
		demandDesc: desc("demand_seats", "EXPERIMENTAL: [ALPHA] Demand for seats over time, as a fraction of the nominal limit.",
			byLevel...),
		requestsDesc: desc("priority_level_request_utilization",
			"EXPERIMENTAL: [ALPHA] Number of requests over time, as a fraction of the maximum.", "phase", "priority_level"),
		seatsDesc: desc("priority_level_seat_utilization",
			"EXPERIMENTAL: [ALPHA] Seats in use over time, as a fraction of the limit.", "phase", "priority_level"),
		readsDesc: desc("read_vs_write_current_requests",
			"EXPERIMENTAL: [ALPHA] Number of reads and writes over time, as a fraction of their limits.", "phase", "request_kind"),
		levels:  map[string]*levelMetrics{},
		schemas: map[schemaBinding]*schemaMetrics{},
		clock:   now,
		limits:  [2]float64{max(float64(maxReads), 1), max(float64(maxWrites), 1)},
	}
	metrics.reads = newRatioGroup(now,
		newTimeRatio(metrics.readsDesc, readRatioBounds, "executing",
			"readOnly"), newTimeRatio(metrics.readsDesc, readRatioBounds, "executing", "mutating"),
		newTimeRatio(metrics.readsDesc, readRatioBounds, "waiting",
			"readOnly"), newTimeRatio(metrics.readsDesc, readRatioBounds, "waiting", "mutating"),
	)
	registerer.MustRegister(
		metrics.executing, metrics.executingSeats, metrics.inQueue, metrics.inQueueSeats, metrics.limit, metrics.nominal, metrics.lower, metrics.upper, metrics.virtual, metrics.dispatchedAt, metrics.latest, metrics.bounds, metrics.discounted,
		metrics.average, metrics.maximum, metrics.smoothed, metrics.deviation, metrics.target, metrics.dispatchedTotal, metrics.rejectedTotal, metrics.execution, metrics.lengths, metrics.waited, metrics.watches, metrics.widths, metrics.fairFraction,
		ratioCollector{metrics},
	)
	return metrics
}

// ratioCollector collects the ratios.
type ratioCollector struct{ metrics *Metrics }

// Describe implements prometheus.Collector.
func (c ratioCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.metrics.demandDesc
	ch <- c.metrics.requestsDesc
	ch <- c.metrics.seatsDesc
	ch <- c.metrics.readsDesc
}

// Collect implements prometheus.Collector.
func (c ratioCollector) Collect(ch chan<- prometheus.Metric) {
	c.metrics.mu.Lock()
	defer c.metrics.mu.Unlock()
	c.metrics.reads.collectRatios(ch)
	for _, l := range c.metrics.levels {
		l.load.collectRatios(ch)
	}
}

// executing and waiting are the indexes of reads in Metrics.reads. The index of writes is one
// higher.
const (
	executingReads = 0
	waitingReads   = 2
)

// recordRunning adds n to the number of requests in a phase.
func (m *Metrics) recordRunning(phase int, write bool, n float64, now time.Time) {
	kind := 0
	if write {
		kind = 1
	}
	m.reads.addToValue(now, phase+kind, n/m.limits[kind])
}

// levelMetrics holds the metrics of one level.
type levelMetrics struct {
	metrics                       *Metrics
	name                          string
	now                           func() time.Time
	load                          *ratioGroup // demand, executing, waiting, seats
	virtual, dispatchedAt, latest prometheus.Gauge
}

// newLevelMetrics creates the metrics of a level.
func (m *Metrics) newLevelMetrics(name string, now func() time.Time) *levelMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	created := &levelMetrics{
		metrics: m,
		name:    name,
		now:     now,
		load: newRatioGroup(now,
			newTimeRatio(m.demandDesc, demandRatioBounds, name), newTimeRatio(m.requestsDesc, requestRatioBounds, "executing", name),
			newTimeRatio(m.requestsDesc, requestRatioBounds,
				"waiting", name), newTimeRatio(m.seatsDesc, seatRatioBounds, "executing", name),
		),
		virtual:      m.virtual.WithLabelValues(name),
		dispatchedAt: m.dispatchedAt.WithLabelValues(name),
		latest:       m.latest.WithLabelValues(name),
	}
	m.levels[name] = created
	return created
}

// removeLevel deletes the metrics of a level.
func (m *Metrics) removeLevel(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.levels, name)
	maps.DeleteFunc(m.schemas, func(b schemaBinding, _ *schemaMetrics) bool { return b.level == name })
	for _, v := range m.schemaVectors() {
		v.DeletePartialMatch(prometheus.Labels{"priority_level": name})
	}
	for _, v := range []partialDeleter{
		m.limit, m.nominal, m.lower, m.upper, m.virtual, m.dispatchedAt, m.latest, m.bounds, m.discounted,
		m.average, m.maximum, m.smoothed, m.deviation, m.target,
	} {
		v.DeletePartialMatch(prometheus.Labels{"priority_level": name})
	}
}

// partialDeleter is a metric vector whose series can be deleted by some of their labels.
type partialDeleter interface{ DeletePartialMatch(prometheus.Labels) int }

// schemaVectors returns the metrics that have a label for the schema.
func (m *Metrics) schemaVectors() []partialDeleter {
	return []partialDeleter{
		m.executing, m.executingSeats, m.inQueue, m.inQueueSeats,
		m.dispatchedTotal, m.rejectedTotal, m.execution, m.lengths, m.waited, m.watches, m.widths,
	}
}

// keepBindings deletes the series of bindings that are not used.
func (m *Metrics) keepBindings(used map[schemaBinding]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for b := range m.schemas {
		if used[b] {
			continue
		}
		delete(m.schemas, b)
		for _, v := range m.schemaVectors() {
			v.DeletePartialMatch(prometheus.Labels{"priority_level": b.level, "flow_schema": b.schema})
		}
	}
}

// recordLoad records the current load of a level. The caller holds level.mu.
func (x *levelMetrics) recordLoad(l *level, now time.Time) {
	nominal := max(float64(l.nominal), 1)
	limit := max(float64(l.limit), 1)
	x.load.setValues(now, float64(l.inUse+l.waitingSeats)/nominal, float64(l.running)/limit,
		float64(l.waiting)/max(float64(l.spec.queues*l.spec.queueLength), 1), float64(l.inUse)/limit)
	x.virtual.Set(l.virtual)
}

// recordDispatch records the dispatch of a request at a virtual time. start is the virtual start
// time of the request.
func (x *levelMetrics) recordDispatch(virtual, start float64) {
	x.dispatchedAt.Set(virtual)
	x.latest.Set(start)
}

// recordLimits records the limits of a level. The caller holds level.mu.
func (x *levelMetrics) recordLimits(l *level) {
	x.metrics.nominal.WithLabelValues(x.name).Set(float64(l.nominal))
	x.metrics.lower.WithLabelValues(x.name).Set(float64(l.lower))
	x.metrics.upper.WithLabelValues(x.name).Set(float64(l.upper))
	x.metrics.limit.WithLabelValues(x.name).Set(float64(l.limit))
}

// recordAdjustment records the result of an adjustment. The caller holds level.mu.
func (x *levelMetrics) recordAdjustment(adjusted *level, target float64) {
	x.recordLimits(adjusted)
	x.metrics.average.WithLabelValues(x.name).Set(adjusted.stats.average)
	x.metrics.maximum.WithLabelValues(x.name).Set(adjusted.stats.maximum)
	x.metrics.smoothed.WithLabelValues(x.name).Set(adjusted.stats.smoothed)
	x.metrics.deviation.WithLabelValues(x.name).Set(adjusted.stats.deviation)
	x.metrics.target.WithLabelValues(x.name).Set(target)
	if len(adjusted.queues) == 0 {
		return
	}
	starts := make([]float64, len(adjusted.queues))
	discounted := make([]float64, len(adjusted.queues))
	for i := range adjusted.queues {
		q := &adjusted.queues[i]
		starts[i] = q.nextStart
		discounted[i] = q.nextStart - float64(q.seats)*estimatedDuration.Seconds()
	}
	x.metrics.bounds.WithLabelValues("min", x.name).Set(slices.Min(starts))
	x.metrics.bounds.WithLabelValues("max", x.name).Set(slices.Max(starts))
	x.metrics.discounted.WithLabelValues("min", x.name).Set(slices.Min(discounted))
	x.metrics.discounted.WithLabelValues("max", x.name).Set(slices.Max(discounted))
}

// schemaMetrics holds the metrics of one schema and its level.
type schemaMetrics struct {
	metrics                                          *Metrics
	labels                                           schemaBinding
	executing, executingSeats, inQueue, inQueueSeats prometheus.Gauge
	dispatchedTotal                                  prometheus.Counter
	widths, lengths, watches, waited, rejected       prometheus.Observer
	// regular and watch are created with their first value, as in Kubernetes.
	regular, watch func() prometheus.Observer
}

// schemaMetricsFor returns the metrics of a schema in a level. They are created on first use.
func (m *Metrics) schemaMetricsFor(name, level string) *schemaMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := schemaBinding{level, name}
	if created := m.schemas[key]; created != nil {
		return created
	}
	created := &schemaMetrics{
		metrics:         m,
		labels:          key,
		executing:       m.executing.WithLabelValues(level, name),
		executingSeats:  m.executingSeats.WithLabelValues(level, name),
		inQueue:         m.inQueue.WithLabelValues(level, name),
		inQueueSeats:    m.inQueueSeats.WithLabelValues(level, name),
		dispatchedTotal: m.dispatchedTotal.WithLabelValues(level, name),
		widths:          m.widths.WithLabelValues(level, name),
		lengths:         m.lengths.WithLabelValues(level, name),
		watches:         m.watches.WithLabelValues(level, name),
		waited:          m.waited.WithLabelValues(level, name, "true"),
		rejected:        m.waited.WithLabelValues(level, name, "false"),
		regular:         sync.OnceValue(func() prometheus.Observer { return m.execution.WithLabelValues(level, name, "regular") }),
		watch:           sync.OnceValue(func() prometheus.Observer { return m.execution.WithLabelValues(level, name, "watch") }),
	}
	m.schemas[key] = created
	return created
}

func (s *schemaMetrics) recordAdmission(waited time.Duration) {
	s.dispatchedTotal.Inc()
	s.waited.Observe(waited.Seconds())
}

// addRunning adds n running requests like r; n may be negative.
func (s *schemaMetrics) addRunning(r *Request, n float64) {
	s.executing.Add(n)
	s.executingSeats.Add(n * float64(r.width.maxSeats()))
}

// recordEnd records the end of a request that held its seats for the duration ran.
func (s *schemaMetrics) recordEnd(r *Request, ran time.Duration) {
	if r.watch {
		s.watch().Observe(ran.Seconds())
	} else {
		s.regular().Observe(ran.Seconds())
	}
}

func (s *schemaMetrics) addWaiting(r *Request, n float64) {
	s.inQueue.Add(n)
	s.inQueueSeats.Add(n * float64(r.width.maxSeats()))
	s.metrics.recordRunning(waitingReads, r.mutating, n, s.metrics.clock())
}

func (s *schemaMetrics) recordRejection(reason string, waited time.Duration) {
	s.metrics.rejectedTotal.WithLabelValues(s.labels.level, s.labels.schema, reason).Inc()
	s.rejected.Observe(waited.Seconds())
}
