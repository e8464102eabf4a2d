package main

import (
	"container/heap"
	"math/rand"
	"slices"
	"time"
)

// Result is the result of a simulation.
type Result struct {
	P50, P99 time.Duration // from the arrival of a write to its delivery to a watcher
	EtcdBusy float64       // busy share of the busiest etcd
	Replica  float64       // average cores used by the busiest replica
	// Behind reports whether writes in the second half wait far longer than in the first, so that
	// the queue grows without bound.
	Behind bool
}

// Simulate generates writes at random times for the duration whole and follows each until its last
// watcher has it:
//
//	replica (a core) ─► etcd (serial, one sync for all waiting writes)
//	   ─► every replica: applied in order ─► delivered (all cores)
//
// Each replica works in order of arrival. Reads and the bandwidth of networks are left out, so a
// real suite is slower.
func Simulate(s Suite, u Units, whole time.Duration, seed int64) Result {
	m := &simulation{s: s, u: u, rand: rand.New(rand.NewSource(seed))}
	for range s.Replicas {
		m.replicas = append(m.replicas, newPool(s.Cores))
	}
	m.applied = make([]time.Duration, s.Replicas)
	m.etcds = make([]etcd, s.Etcds)
	m.at(0, func(now time.Duration) { m.arrive(now, whole) })
	for m.events.Len() > 0 {
		e := heap.Pop(&m.events).(event)
		e.do(e.at)
	}
	return m.result(whole)
}

type simulation struct {
	s         Suite
	u         Units
	rand      *rand.Rand
	events    events
	count     int
	replicas  []*pool
	applied   []time.Duration // when each replica has applied all changes so far
	etcds     []etcd
	delivered []delivery
}

type delivery struct {
	arrived, took time.Duration
	watchers      int
}

// etcd is one cluster and the writes that wait for its next sync.
type etcd struct {
	waiting []time.Duration // arrivals of the writes
	working bool
	busy    time.Duration
}

func (m *simulation) at(t time.Duration, do func(now time.Duration)) {
	m.count++
	heap.Push(&m.events, event{t, m.count, do})
}

// arrive handles a write and schedules the next.
func (m *simulation) arrive(now, whole time.Duration) {
	if now > whole {
		return
	}
	m.at(now+time.Duration(m.rand.ExpFloat64()/m.s.Writes*float64(time.Second)), func(t time.Duration) { m.arrive(t, whole) })
	writers := max(m.s.Replicas-m.s.Readers, 1)
	done := m.replicas[m.rand.Intn(writers)].work(now, m.u.Write)
	i := m.rand.Intn(m.s.Etcds)
	m.at(done+m.u.Hop, func(t time.Duration) {
		m.etcds[i].waiting = append(m.etcds[i].waiting, now)
		m.commit(i, t)
	})
}

// commit writes all waiting writes.
func (m *simulation) commit(i int, now time.Duration) {
	e := &m.etcds[i]
	if e.working || len(e.waiting) == 0 {
		return
	}
	batch := e.waiting
	e.waiting, e.working = nil, true
	took := m.u.Sync + time.Duration(len(batch))*m.u.Etcd
	e.busy += took
	m.at(now+took, func(t time.Duration) {
		e.working = false
		for _, arrived := range batch {
			m.publish(arrived, t)
		}
		m.commit(i, t)
	})
}

// publish makes every replica apply and deliver a change.
func (m *simulation) publish(arrived, now time.Duration) {
	near := m.rand.Intn(m.s.Replicas) // the replica of the narrow watchers
	for r := range m.replicas {
		broad, narrow := part(m.s.Broad, m.s.Replicas, r), 0
		if r == near {
			narrow = m.s.Matching
		}
		m.at(max(now+m.u.Hop, m.applied[r]), func(t time.Duration) {
			m.applied[r] = m.replicas[r].work(max(t, m.applied[r]), m.u.Apply)
			m.deliver(r, arrived, broad, narrow)
		})
	}
}

// deliver writes to the watchers of a replica on all of its cores.
func (m *simulation) deliver(r int, arrived time.Duration, broad, narrow int) {
	if broad+narrow == 0 {
		return
	}
	m.at(m.applied[r], func(t time.Duration) {
		cost := time.Duration(broad)*m.u.Delivery + time.Duration(narrow)*m.u.Narrow
		pieces := min(broad+narrow, m.s.Cores)
		for i := range pieces {
			end := m.replicas[r].work(t, cost/time.Duration(pieces))
			m.delivered = append(m.delivered, delivery{arrived, end + m.u.Hop - arrived, part(broad+narrow, pieces, i)})
		}
	})
}

// part returns the size of the i-th of several nearly equal parts of n.
func part(n, of, i int) int { return n*(i+1)/of - n*i/of }

func (m *simulation) result(whole time.Duration) Result {
	var out Result
	for _, e := range m.etcds {
		out.EtcdBusy = max(out.EtcdBusy, min(1, e.busy.Seconds()/whole.Seconds()))
	}
	for _, p := range m.replicas {
		out.Replica = max(out.Replica, p.busy.Seconds()/whole.Seconds())
	}
	var first, second []delivery
	for _, d := range m.delivered {
		if d.arrived < whole/2 {
			first = append(first, d)
		} else {
			second = append(second, d)
		}
	}
	const far = 100 * time.Millisecond
	out.Behind = quantile(second, 0.5) > 2*quantile(first, 0.5) && quantile(second, 0.5) > far
	out.P50, out.P99 = quantile(m.delivered, 0.5), quantile(m.delivered, 0.99)
	return out
}

// quantile returns the quantile over watchers.
func quantile(of []delivery, q float64) time.Duration {
	slices.SortFunc(of, func(a, b delivery) int { return int(a.took - b.took) })
	all := 0
	for _, d := range of {
		all += d.watchers
	}
	seen := 0
	for _, d := range of {
		if seen += d.watchers; float64(seen) >= q*float64(all) {
			return d.took
		}
	}
	return 0
}

// pool is the cores of a server. Work goes to the core that is free first.
type pool struct {
	free []time.Duration
	busy time.Duration
}

func newPool(cores int) *pool { return &pool{free: make([]time.Duration, cores)} }

// work returns when work that arrives now is done.
func (p *pool) work(now, takes time.Duration) time.Duration {
	i := 0
	for j := range p.free {
		if p.free[j] < p.free[i] {
			i = j
		}
	}
	p.free[i] = max(now, p.free[i]) + takes
	p.busy += takes
	return p.free[i]
}

type event struct {
	at time.Duration
	n  int // order of events at the same time
	do func(now time.Duration)
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}
