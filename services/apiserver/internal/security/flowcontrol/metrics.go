package flowcontrol

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const namePrefix = "apiserver_flowcontrol_"

// Metrics of flow control, under the names that Kubernetes has for them.
type Metrics struct {
	executing, executingSeats, inQueue, inQueueSeats  *prometheus.GaugeVec
	limit, nominal, lower, upper                      *prometheus.GaugeVec
	virtual, dispatchedAt, latest, bounds, discounted *prometheus.GaugeVec
	average, most, smoothed, deviation, target        *prometheus.GaugeVec
	dispatchedTotal, rejectedTotal                    *prometheus.CounterVec
	execution, lengths, waited, watches, widths       *prometheus.HistogramVec
	fair                                              prometheus.Gauge
	demandDesc, requestsDesc, seatsDesc, readsDesc    *prometheus.Desc

	mu      sync.Mutex
	levels  map[string]*levelMetrics
	schemas map[binding]*schemaMetrics
	reads   *ratios    // those of executing, then of waiting: reads, writes
	limits  [2]float64 // of reads and writes, for their part of it
	clock   func() time.Time
}

var (
	byLevel  = []string{"priority_level"}
	bySchema = []string{"priority_level", "flow_schema"}
	seconds  = []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}

	demandBounds  = []float64{0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6}
	requestBounds = []float64{0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1}
	seatBounds    = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}
	readBounds    = []float64{0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}
)

// NewMetrics registers the metrics. The limits are those of reads and of writes,
// of which the metric of both tells the part that is used.
func NewMetrics(r prometheus.Registerer, maxReads, maxWrites int, now func() time.Time) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: namePrefix + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: namePrefix + name, Help: help, Buckets: buckets}, labels)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namePrefix+name, help, labels, nil)
	}
	m := &Metrics{
		executing:      gauge("current_executing_requests", "[BETA] Requests that run, or watches that begin.", bySchema...),
		executingSeats: gauge("current_executing_seats", "[BETA] Seats that running requests hold.", bySchema...),
		inQueue:        gauge("current_inqueue_requests", "[BETA] Requests that wait in queues.", bySchema...),
		inQueueSeats:   gauge("current_inqueue_seats", "[ALPHA] Seats that waiting requests want.", bySchema...),
		limit:          gauge("current_limit_seats", "[ALPHA] Seats that a level may use now.", byLevel...),
		nominal:        gauge("nominal_limit_seats", "[BETA] Seats of a level by its shares.", byLevel...),
		lower:          gauge("lower_limit_seats", "[ALPHA] Seats that a level has at least.", byLevel...),
		upper:          gauge("upper_limit_seats", "[ALPHA] Seats that a level has at most.", byLevel...),
		virtual:        gauge("current_r", "[ALPHA] Virtual time of a level, in seat-seconds.", byLevel...),
		dispatchedAt:   gauge("dispatch_r", "[ALPHA] Virtual time at the last dispatch.", byLevel...),
		latest:         gauge("latest_s", "[ALPHA] Virtual start of the last request that was dispatched.", byLevel...),
		bounds:         gauge("next_s_bounds", "[ALPHA] Bounds over the queues of the virtual start of the next request.", "bound", "priority_level"),
		discounted:     gauge("next_discounted_s_bounds", "[ALPHA] The same bounds without the work that is still a guess.", "bound", "priority_level"),
		average:        gauge("demand_seats_average", "[ALPHA] Seats that were wanted in the last period, on average.", byLevel...),
		most:           gauge("demand_seats_high_watermark", "[ALPHA] Seats that were wanted in the last period, at most.", byLevel...),
		smoothed:       gauge("demand_seats_smoothed", "[ALPHA] Seats that were wanted, smoothed over periods.", byLevel...),
		deviation:      gauge("demand_seats_stdev", "[ALPHA] Deviation of the seats that were wanted in the last period.", byLevel...),
		target:         gauge("target_seats", "[ALPHA] Seats that the last adjustment meant a level to have.", byLevel...),
		dispatchedTotal: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: namePrefix + "dispatched_requests_total", Help: "[BETA] Requests that were let in.",
		}, bySchema),
		rejectedTotal: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: namePrefix + "rejected_requests_total", Help: "[BETA] Requests that were refused.",
		}, append(bySchema[:2:2], "reason")),
		execution: histogram("request_execution_seconds", "[ALPHA] How long requests ran.", seconds, append(bySchema[:2:2], "type")...),
		lengths:   histogram("request_queue_length_after_enqueue", "[ALPHA] Length of a queue that a request came into.", []float64{0, 10, 25, 50, 100, 250, 500, 1000}, bySchema...),
		waited:    histogram("request_wait_duration_seconds", "[BETA] How long requests waited.", seconds, append(bySchema[:2:2], "execute")...),
		watches:   histogram("watch_count_samples", "[ALPHA] Watchers that a write concerned.", []float64{0, 1, 10, 100, 1000, 10000}, bySchema...),
		widths:    histogram("work_estimated_seats", "[ALPHA] Seats of requests.", []float64{1, 2, 4, 10}, bySchema...),
		fair: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: namePrefix + "seat_fair_frac", Help: "[ALPHA] Part of what levels want that the last adjustment gave.",
		}),
		demandDesc:   desc("demand_seats", "EXPERIMENTAL: [ALPHA] Seats that are wanted over time, as a part of the level's.", byLevel...),
		requestsDesc: desc("priority_level_request_utilization", "EXPERIMENTAL: [ALPHA] Requests over time, as a part of what a level may have.", "phase", "priority_level"),
		seatsDesc:    desc("priority_level_seat_utilization", "EXPERIMENTAL: [ALPHA] Seats in use over time, as a part of the level's.", "phase", "priority_level"),
		readsDesc:    desc("read_vs_write_current_requests", "EXPERIMENTAL: [ALPHA] Reads and writes over time, as a part of their limits.", "phase", "request_kind"),
		levels:       map[string]*levelMetrics{}, schemas: map[binding]*schemaMetrics{}, clock: now,
		limits: [2]float64{max(float64(maxReads), 1), max(float64(maxWrites), 1)},
	}
	m.reads = newRatios(now,
		newRatio(m.readsDesc, readBounds, "executing", "readOnly"), newRatio(m.readsDesc, readBounds, "executing", "mutating"),
		newRatio(m.readsDesc, readBounds, "waiting", "readOnly"), newRatio(m.readsDesc, readBounds, "waiting", "mutating"),
	)
	r.MustRegister(
		m.executing, m.executingSeats, m.inQueue, m.inQueueSeats, m.limit, m.nominal, m.lower, m.upper, m.virtual, m.dispatchedAt, m.latest, m.bounds, m.discounted,
		m.average, m.most, m.smoothed, m.deviation, m.target, m.dispatchedTotal, m.rejectedTotal, m.execution, m.lengths, m.waited, m.watches, m.widths, m.fair,
		overTime{m},
	)
	return m
}

// overTime collects what is counted by time.
type overTime struct{ m *Metrics }

// Describe implements prometheus.Collector.
func (o overTime) Describe(ch chan<- *prometheus.Desc) {
	ch <- o.m.demandDesc
	ch <- o.m.requestsDesc
	ch <- o.m.seatsDesc
	ch <- o.m.readsDesc
}

// Collect implements prometheus.Collector.
func (o overTime) Collect(ch chan<- prometheus.Metric) {
	o.m.mu.Lock()
	defer o.m.mu.Unlock()
	o.m.reads.collect(ch)
	for _, l := range o.m.levels {
		l.load.collect(ch)
	}
}

// executing and waiting are the places of reads among the ratios; writes follow.
const (
	executing = 0
	waiting   = 2
)

// running notes that n more requests are in a phase.
func (m *Metrics) running(phase int, write bool, n float64, now time.Time) {
	kind := 0
	if write {
		kind = 1
	}
	m.reads.add(now, phase+kind, n/m.limits[kind])
}

func (m *Metrics) fraction(f float64) { m.fair.Set(f) }

// levelMetrics are those of one level.
type levelMetrics struct {
	m                             *Metrics
	name                          string
	now                           func() time.Time
	load                          *ratios // demand, executing, waiting, seats
	virtual, dispatchedAt, latest prometheus.Gauge
}

func (m *Metrics) level(name string, now func() time.Time) *levelMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &levelMetrics{
		m: m, name: name, now: now,
		load: newRatios(now,
			newRatio(m.demandDesc, demandBounds, name), newRatio(m.requestsDesc, requestBounds, "executing", name),
			newRatio(m.requestsDesc, requestBounds, "waiting", name), newRatio(m.seatsDesc, seatBounds, "executing", name),
		),
		virtual: m.virtual.WithLabelValues(name), dispatchedAt: m.dispatchedAt.WithLabelValues(name), latest: m.latest.WithLabelValues(name),
	}
	m.levels[name] = l
	return l
}

func (m *Metrics) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.levels, name)
	maps.DeleteFunc(m.schemas, func(b binding, _ *schemaMetrics) bool { return b.level == name })
	for _, v := range m.ofSchemas() {
		v.DeletePartialMatch(prometheus.Labels{"priority_level": name})
	}
	for _, v := range []partial{
		m.limit, m.nominal, m.lower, m.upper, m.virtual, m.dispatchedAt, m.latest, m.bounds, m.discounted,
		m.average, m.most, m.smoothed, m.deviation, m.target,
	} {
		v.DeletePartialMatch(prometheus.Labels{"priority_level": name})
	}
}

// partial is a metric whose series can be deleted by some of their labels.
type partial interface{ DeletePartialMatch(prometheus.Labels) int }

// ofSchemas returns the metrics that have a label for the schema.
func (m *Metrics) ofSchemas() []partial {
	return []partial{
		m.executing, m.executingSeats, m.inQueue, m.inQueueSeats,
		m.dispatchedTotal, m.rejectedTotal, m.execution, m.lengths, m.waited, m.watches, m.widths,
	}
}

// keep deletes the series of bindings that are not used.
func (m *Metrics) keep(used map[binding]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for b := range m.schemas {
		if used[b] {
			continue
		}
		delete(m.schemas, b)
		for _, v := range m.ofSchemas() {
			v.DeletePartialMatch(prometheus.Labels{"priority_level": b.level, "flow_schema": b.schema})
		}
	}
}

// loaded tells of what is there. The caller holds level.mu.
func (x *levelMetrics) loaded(l *level, now time.Time) {
	nominal, limit := max(float64(l.nominal), 1), max(float64(l.limit), 1)
	x.load.set(now, float64(l.inUse+l.waitingSeats)/nominal, float64(l.running)/limit,
		float64(l.waiting)/max(float64(l.plan.queues*l.plan.length), 1), float64(l.inUse)/limit)
	x.virtual.Set(l.virtual)
}

// dispatched tells of a request that came out of a queue.
func (x *levelMetrics) dispatched(r *Request, start, next float64) {
	x.dispatchedAt.Set(r.schema.level.virtual)
	x.latest.Set(start)
}

func (x *levelMetrics) limits(l *level) {
	x.m.nominal.WithLabelValues(x.name).Set(float64(l.nominal))
	x.m.lower.WithLabelValues(x.name).Set(float64(l.lower))
	x.m.upper.WithLabelValues(x.name).Set(float64(l.upper))
	x.m.limit.WithLabelValues(x.name).Set(float64(l.limit))
}

// adjusted tells of an adjustment. The caller holds level.mu.
func (x *levelMetrics) adjusted(l *level, target float64) {
	x.limits(l)
	x.m.average.WithLabelValues(x.name).Set(l.stats.average)
	x.m.most.WithLabelValues(x.name).Set(l.stats.most)
	x.m.smoothed.WithLabelValues(x.name).Set(l.stats.smoothed)
	x.m.deviation.WithLabelValues(x.name).Set(l.stats.deviation)
	x.m.target.WithLabelValues(x.name).Set(target)
	if len(l.queues) == 0 {
		return
	}
	low, high, lowest, highest := l.starts()
	x.m.bounds.WithLabelValues("min", x.name).Set(low)
	x.m.bounds.WithLabelValues("max", x.name).Set(high)
	x.m.discounted.WithLabelValues("min", x.name).Set(lowest)
	x.m.discounted.WithLabelValues("max", x.name).Set(highest)
}

// starts are the bounds of the queues' next starts, with and without what is a
// guess. The caller holds mu.
func (l *level) starts() (low, high, lowest, highest float64) {
	for i := range l.queues {
		q := &l.queues[i]
		known := q.next - float64(q.seats)*guess.Seconds()
		if i == 0 {
			low, high, lowest, highest = q.next, q.next, known, known
		}
		low, high, lowest, highest = min(low, q.next), max(high, q.next), min(lowest, known), max(highest, known)
	}
	return low, high, lowest, highest
}

// schemaMetrics are those of one schema and its level.
type schemaMetrics struct {
	m                                                *Metrics
	labels                                           binding
	executing, executingSeats, inQueue, inQueueSeats prometheus.Gauge
	dispatchedTotal                                  prometheus.Counter
	widths, lengths, watches, waited, refused        prometheus.Observer
	regular, watch                                   prometheus.Observer
}

func (m *Metrics) schema(name, level string) *schemaMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := binding{level, name}
	if s := m.schemas[key]; s != nil {
		return s
	}
	s := &schemaMetrics{
		m: m, labels: key,
		executing: m.executing.WithLabelValues(level, name), executingSeats: m.executingSeats.WithLabelValues(level, name),
		inQueue: m.inQueue.WithLabelValues(level, name), inQueueSeats: m.inQueueSeats.WithLabelValues(level, name),
		dispatchedTotal: m.dispatchedTotal.WithLabelValues(level, name),
		widths:          m.widths.WithLabelValues(level, name), lengths: m.lengths.WithLabelValues(level, name), watches: m.watches.WithLabelValues(level, name),
		waited: m.waited.WithLabelValues(level, name, "true"), refused: m.waited.WithLabelValues(level, name, "false"),
		regular: m.execution.WithLabelValues(level, name, "regular"), watch: m.execution.WithLabelValues(level, name, "watch"),
	}
	m.schemas[key] = s
	return s
}

func (s *schemaMetrics) began(waited time.Duration) {
	s.dispatchedTotal.Inc()
	s.waited.Observe(waited.Seconds())
}

// runs tells of n requests like r, of one less when n is -1.
func (s *schemaMetrics) runs(r *Request, n float64) {
	s.executing.Add(n)
	s.executingSeats.Add(n * float64(r.width.most()))
}

func (s *schemaMetrics) ended(r *Request, ran time.Duration) {
	if r.watch {
		s.watch.Observe(ran.Seconds())
	} else {
		s.regular.Observe(ran.Seconds())
	}
}

func (s *schemaMetrics) waits(r *Request, n float64) {
	s.inQueue.Add(n)
	s.inQueueSeats.Add(n * float64(r.width.most()))
	s.m.running(waiting, r.mutating, n, s.m.clock())
}

func (s *schemaMetrics) rejected(reason string, waited time.Duration) {
	s.m.rejectedTotal.WithLabelValues(s.labels.level, s.labels.schema, reason).Inc()
	s.refused.Observe(waited.Seconds())
}
