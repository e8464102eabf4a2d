package main

import (
	"container/heap"
	"math/rand"
	"slices"
	"time"
)

// Result is the result of a simulation.
type Result struct {
	P50, P99     time.Duration // from the arrival of a write to its delivery to a watcher
	EtcdBusy     float64       // busy share of the busiest etcd
	ReplicaCores float64       // average cores used by the busiest replica
	// Overloaded reports whether writes in the second half wait far longer than in the first, so
	// that the queue grows without bound.
	Overloaded bool
}

// Simulate generates writes at random times for a duration and follows each until its last
// watcher has it:
//
//	replica (a core) ─► etcd (serial, one sync for all waiting writes)
//	   ─► every replica: applied in order ─► delivered (all cores)
//
// Each replica works in order of arrival. Reads and the bandwidth of networks are left out, so a
// real suite is slower.
func Simulate(suite Suite, u Costs, duration time.Duration, seed int64) Result {
	m := &simulation{suite: suite, costs: u, rand: rand.New(rand.NewSource(seed))}
	for range suite.Replicas {
		m.replicas = append(m.replicas, newCorePool(suite.Cores))
	}
	m.applied = make([]time.Duration, suite.Replicas)
	m.etcds = make([]etcd, suite.Etcds)
	m.schedule(0, func(now time.Duration) { m.receiveWrite(now, duration) })
	for m.events.Len() > 0 {
		e := heap.Pop(&m.events).(event)
		e.do(e.at)
	}
	return m.result(duration)
}

// simulation is the state of a simulation. Events are processed in the order of their times.
type simulation struct {
	suite      Suite
	costs      Costs
	rand       *rand.Rand
	events     events
	eventCount int
	replicas   []*corePool
	applied    []time.Duration // when each replica has applied all changes so far
	etcds      []etcd
	delivered  []delivery
}

// delivery is the delivery of a write to watchers of one replica at the same time.
type delivery struct {
	arrived, latency time.Duration
	watchers         int
}

// etcd is one cluster and the writes that wait for its next sync.
type etcd struct {
	waiting []time.Duration // arrivals of the writes
	syncing bool
	busy    time.Duration
}

// schedule makes do run at a time.
func (m *simulation) schedule(t time.Duration, do func(now time.Duration)) {
	m.eventCount++
	heap.Push(&m.events, event{t, m.eventCount, do})
}

// receiveWrite handles a write that arrives at a replica, and schedules the next one.
func (m *simulation) receiveWrite(now, duration time.Duration) {
	if now > duration {
		return
	}
	m.schedule(now+time.Duration(m.rand.ExpFloat64()/m.suite.Writes*float64(time.Second)),
		func(t time.Duration) { m.receiveWrite(t, duration) })
	writers := max(m.suite.Replicas-m.suite.Readers, 1)
	done := m.replicas[m.rand.Intn(writers)].runOn(now, m.costs.ReceiveWrite)
	i := m.rand.Intn(m.suite.Etcds)
	m.schedule(done+m.costs.HopLatency, func(t time.Duration) {
		m.etcds[i].waiting = append(m.etcds[i].waiting, now)
		m.syncWaiting(i, t)
	})
}

// syncWaiting makes the i-th etcd write and sync all waiting writes, unless it is busy.
func (m *simulation) syncWaiting(i int, now time.Duration) {
	e := &m.etcds[i]
	if e.syncing || len(e.waiting) == 0 {
		return
	}
	batch := e.waiting
	e.waiting, e.syncing = nil, true
	took := m.costs.EtcdSync + time.Duration(len(batch))*m.costs.EtcdWrite
	e.busy += took
	m.schedule(now+took, func(t time.Duration) {
		e.syncing = false
		for _, arrived := range batch {
			m.publish(arrived, t)
		}
		m.syncWaiting(i, t)
	})
}

// publish makes every replica apply and deliver a change.
func (m *simulation) publish(arrived, now time.Duration) {
	narrowReplica := m.rand.Intn(m.suite.Replicas)
	for r := range m.replicas {
		broad, narrow := partSize(m.suite.BroadWatchers, m.suite.Replicas, r), 0
		if r == narrowReplica {
			narrow = m.suite.MatchingWatchers
		}
		m.schedule(max(now+m.costs.HopLatency, m.applied[r]), func(t time.Duration) {
			m.applied[r] = m.replicas[r].runOn(max(t, m.applied[r]), m.costs.ApplyChange)
			m.deliver(r, arrived, broad, narrow)
		})
	}
}

// deliver writes to the watchers of a replica on all of its cores.
func (m *simulation) deliver(r int, arrived time.Duration, broad, narrow int) {
	if broad+narrow == 0 {
		return
	}
	m.schedule(m.applied[r], func(t time.Duration) {
		cost := time.Duration(broad)*m.costs.BroadDelivery + time.Duration(narrow)*m.costs.NarrowDelivery
		pieces := min(broad+narrow, m.suite.Cores)
		for i := range pieces {
			end := m.replicas[r].runOn(t, cost/time.Duration(pieces))
			m.delivered = append(m.delivered,
				delivery{arrived, end + m.costs.HopLatency - arrived, partSize(broad+narrow, pieces, i)})
		}
	})
}

// partSize returns the size of the i-th of several nearly equal parts of n.
func partSize(n, of, i int) int { return n*(i+1)/of - n*i/of }

// result summarizes the simulation.
func (m *simulation) result(duration time.Duration) Result {
	var out Result
	for _, e := range m.etcds {
		out.EtcdBusy = max(out.EtcdBusy, min(1, e.busy.Seconds()/duration.Seconds()))
	}
	for _, p := range m.replicas {
		out.ReplicaCores = max(out.ReplicaCores, p.busy.Seconds()/duration.Seconds())
	}
	var first, second []delivery
	for _, d := range m.delivered {
		if d.arrived < duration/2 {
			first = append(first, d)
		} else {
			second = append(second, d)
		}
	}
	const far = 100 * time.Millisecond
	out.Overloaded = quantile(second, 0.5) > 2*quantile(first, 0.5) && quantile(second, 0.5) > far
	out.P50, out.P99 = quantile(m.delivered, 0.5), quantile(m.delivered, 0.99)
	return out
}

// quantile returns the quantile over watchers.
func quantile(deliveries []delivery, q float64) time.Duration {
	slices.SortFunc(deliveries, func(a, b delivery) int { return int(a.latency - b.latency) })
	all := 0
	for _, d := range deliveries {
		all += d.watchers
	}
	seen := 0
	for _, d := range deliveries {
		if seen += d.watchers; float64(seen) >= q*float64(all) {
			return d.latency
		}
	}
	return 0
}

// corePool is the cores of a server. Work goes to the core that is free first.
type corePool struct {
	freeAt []time.Duration
	busy   time.Duration
}

func newCorePool(cores int) *corePool { return &corePool{freeAt: make([]time.Duration, cores)} }

// runOn returns the time at which work that arrives now is done.
func (p *corePool) runOn(now, takes time.Duration) time.Duration {
	i := 0
	for j := range p.freeAt {
		if p.freeAt[j] < p.freeAt[i] {
			i = j
		}
	}
	p.freeAt[i] = max(now, p.freeAt[i]) + takes
	p.busy += takes
	return p.freeAt[i]
}

// event is a scheduled function.
type event struct {
	at    time.Duration
	order int // order of events at the same time
	do    func(now time.Duration)
}

// events is a heap of events (container/heap).
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}
