package flowcontrol

import (
	"sync"
	"time"
)

// level is a priority level as it is at a time.
type level struct {
	name string

	mu   sync.Mutex // leaf
	plan *plan
	limits
	// limit is what it may use now, after lending and borrowing.
	limit int

	// first of all requests that are there, for who looks at them.
	first *Request

	running      int // requests
	inUse        int // seats of those that run, or whose work goes on after them
	lingering    int // those of inUse whose requests have ended
	waiting      int // requests
	waitingSeats int

	queues []queue
	busy   int            // queues with something to do
	flows  map[uint64]int // requests that run and came out of queues, by the hash of their flow
	// virtual time in seat-seconds, as of seen.
	virtual float64
	seen    time.Time
	robin   int

	demand integral
	stats  demandStats
	// leaving tells that nobody is sent here any more.
	leaving bool

	counts  counts
	refused refusals
	metrics *levelMetrics
}

type counts struct{ dispatched, rejected, timedOut, cancelled int }

// configure takes up what a plan says.
func (l *level) configure(p *plan, n limits, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh, limits, limit := l.plan == nil, l.limits, l.limit
	l.plan, l.limits = p, n
	if fresh {
		l.seen, l.limit, l.flows = now, n.nominal, map[uint64]int{}
		l.demand.begin(now)
	}
	l.leaving = false
	l.advance(now)
	l.limit = min(max(l.limit, n.lower), n.upper)
	l.resize()
	if fresh || l.limits != limits || l.limit != limit {
		l.metrics.limits(l)
	}
	if len(l.queues) > 0 {
		l.dispatch(now)
	}
}

// idle tells that nothing is there. The caller holds mu.
func (l *level) idle() bool { return l.running == 0 && l.waiting == 0 && l.inUse == 0 }

// reserveShare of the seats, one part in so many, is for flows none of whose requests run, where no flow
// is dealt all queues: a client that asks for much at once, of which nothing ends for a while, would have
// all others wait for that. Queues do not tell: a flow has a hand of them, and many flows share each.
const reserveShare = 8

// fits tells whether a request may run now. One that wants more seats than there are runs alone. The
// caller holds mu.
func (l *level) fits(r *Request) bool {
	if l.plan.kind == exempt {
		return true
	}
	seats := r.width.most()
	if seats > l.limit {
		return l.running == 0 && l.inUse == 0
	}
	free := l.limit - l.inUse
	if l.plan.kind == queues && l.plan.queues > l.plan.hand && l.flows[r.hash] > 0 {
		free -= l.limit / reserveShare
	}
	return seats <= free
}

// come takes a request in: it runs, waits until turn is closed, or is refused for
// a reason.
func (l *level) come(r *Request, now time.Time, hash func() uint64) (reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	if l.plan.kind != queues {
		if !l.fits(r) {
			return l.refuse(now, reasonConcurrency)
		}
		l.run(r, now)
		return ""
	}
	r.hash = hash()
	i := l.choose(r.hash)
	// For each seat that is free one more may wait: what all wait for is one that wants more seats, or
	// those that are for others.
	if more := len(l.queues[i].waiting) - l.plan.length; more >= 0 && (more >= l.limit-l.inUse || !l.fits(r)) {
		return l.refuse(now, reasonQueueFull)
	}
	l.wait(r, i, now)
	return ""
}

// comeBack takes in a request that gave its seats back; false where there is neither
// a seat nor a queue.
func (l *level) comeBack(r *Request, now time.Time, hash func() uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	if l.plan.kind == queues {
		r.hash = hash()
		l.wait(r, l.choose(r.hash), now)
		return true
	}
	if !l.fits(r) {
		return false
	}
	l.run(r, now)
	return true
}

// run lets a request run that is in no queue. The caller holds mu.
func (l *level) run(r *Request, now time.Time) {
	r.queue = noQueue
	l.link(r)
	l.start(r, now)
	l.noteDemand(now)
}

// wait has a request wait in a queue, if it must. The caller holds mu.
func (l *level) wait(r *Request, i int, now time.Time) {
	l.link(r)
	if l.waiting == 0 && l.fits(r) {
		l.pass(r, i, now)
	} else {
		r.turn = make(chan struct{})
		l.enqueue(r, i)
		l.dispatch(now)
	}
	if !r.paused {
		r.schema.lengths.Observe(float64(max(1, len(l.queues[i].waiting))))
	}
	l.noteDemand(now)
}

func (l *level) refuse(now time.Time, reason string) string {
	l.counts.rejected++
	l.refused.add(now)
	return reason
}

// start lets a request run. The caller holds mu.
func (l *level) start(r *Request, now time.Time) {
	r.started = now
	l.running++
	l.inUse += r.width.most()
	l.counts.dispatched++
}

// give up a request that waits; false when it runs by now.
func (l *level) giveUp(r *Request, now time.Time, reason string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	if !r.started.IsZero() || !l.remove(r) {
		return false
	}
	l.unlink(r)
	if reason == reasonCancelled {
		l.counts.cancelled++
	} else {
		l.counts.timedOut++
		l.refused.add(now)
	}
	l.dispatch(now) // it may have stood before narrower ones
	l.noteDemand(now)
	return true
}

// lingerShare of the seats, one part in so many, may be kept for what requests leave to others:
// one user whose writes are watched by many would keep all of them from others.
const lingerShare = 2

// end of a request that ran. What it set going after it keeps seats for a while.
func (l *level) end(r *Request, now time.Time) {
	l.mu.Lock()
	l.advance(now)
	l.running--
	l.unlink(r)
	held := 0
	if r.width.After > 0 {
		held = min(r.width.Final, max(max(l.limit/lingerShare, 1)-l.lingering, 0))
	}
	l.lingering += held
	l.free(r, r.width.most()-held)
	if r.queue != noQueue {
		q := &l.queues[r.queue]
		// What was charged was a guess.
		q.next += (now.Sub(r.started) - guess).Seconds() * float64(r.width.Seats)
		q.running--
		l.rest(q)
		if l.flows[r.hash]--; l.flows[r.hash] == 0 {
			delete(l.flows, r.hash)
		}
	}
	l.admitWaiting(now)
	l.mu.Unlock()
	if held > 0 {
		time.AfterFunc(r.width.After, func() {
			now := l.metrics.now()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.advance(now)
			l.inUse -= held
			l.lingering -= held
			l.admitWaiting(now)
		})
	}
}

func (l *level) free(r *Request, seats int) {
	l.inUse -= seats
	if r.queue != noQueue {
		l.queues[r.queue].seats -= r.width.most()
	}
}

// admitWaiting gives seats that became free to those that wait. The caller holds mu.
func (l *level) admitWaiting(now time.Time) {
	if l.waiting > 0 {
		l.dispatch(now)
	}
	l.noteDemand(now)
}

func (l *level) noteDemand(now time.Time) {
	l.demand.set(now, float64(l.inUse+l.waitingSeats))
	l.metrics.loaded(l, now)
}

func (l *level) link(r *Request) {
	if r.next = l.first; r.next != nil {
		r.next.previous = r
	}
	l.first = r
}

func (l *level) unlink(r *Request) {
	if r.previous != nil {
		r.previous.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.previous = r.previous
	}
	r.next, r.previous = nil, nil
}
