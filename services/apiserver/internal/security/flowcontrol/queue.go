package flowcontrol

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// estimatedDuration is the assumed duration of a request until it has ended.
const estimatedDuration = 3 * time.Millisecond

// queue holds waiting requests of the flows whose hand contains it, the oldest first.
type queue struct {
	waiting []*Request
	running int // running requests of the queue
	seats   int // seats of the running requests
	// nextStart is the virtual start time of the next request.
	nextStart float64
	// work is the estimated work of the waiting requests, in seat-seconds.
	work float64
}

func (q *queue) isIdle() bool { return len(q.waiting) == 0 && q.running == 0 }

// dealHand appends a hand of distinct numbers below n to out. The hash is the seed of the choice,
// so a flow always gets the same hand.
func dealHand(hash uint64, queues, hand int, out []int) []int {
	random := rand.NewPCG(hash, hash^0x9e3779b97f4a7c15) // the constant makes the second half of the seed differ
	for len(out) < hand {
		// Drawing again is cheap because hands are small. A hand of all queues needs no drawing.
		if hand == queues {
			out = append(out, len(out))
			continue
		}
		if i := int(random.Uint64() % uint64(queues)); !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	return out
}

// chooseQueue returns the queue with the least work in the hand of a flow. The caller holds mu.
func (l *level) chooseQueue(hash uint64) int {
	var hand [16]int
	chosen, least := -1, math.Inf(1)
	for _, i := range dealHand(hash, l.spec.queues, min(l.spec.handSize, len(hand)), hand[:0]) {
		q := &l.queues[i]
		if work := q.work + float64(q.seats)*estimatedDuration.Seconds(); work < least {
			chosen, least = i, work
		}
	}
	return chosen
}

// advanceVirtualTime advances virtual time to now. Each active queue gets an equal part of the
// demanded seats. The caller holds mu.
func (l *level) advanceVirtualTime(now time.Time) {
	if l.activeQueues > 0 {
		// A level without seats runs one request at a time.
		desired := float64(min(l.inUse+l.waitingSeats, max(l.limit, 1)))
		l.virtual += now.Sub(l.virtualAt).Seconds() * desired / float64(l.activeQueues)
	}
	l.virtualAt = now
}

// joinQueue assigns a request to a queue and activates the queue. The caller holds mu.
func (l *level) joinQueue(req *Request, index int) *queue {
	q := &l.queues[index]
	if q.isIdle() {
		l.activeQueues++
		q.nextStart = l.virtual
	}
	req.queue = index
	req.virtualArrival = l.virtual
	return q
}

// startThroughQueue starts a request that need not wait. It has the effect of enqueue and dispatch
// with empty queues. The caller holds mu.
func (l *level) startThroughQueue(req *Request, index int, now time.Time) {
	l.startFromQueue(l.joinQueue(req, index), index, req, now)
}

// startFromQueue starts a request of a queue. The caller holds mu.
func (l *level) startFromQueue(q *queue, index int, req *Request, now time.Time) {
	q.nextStart = max(q.nextStart, req.virtualArrival) + req.work
	q.running++
	l.flows[req.flowHash]++
	q.seats += req.width.maxSeats()
	l.lastQueue = index
	l.metrics.recordDispatch(l.virtual, q.nextStart-req.work)
	l.start(req, now)
}

// enqueue adds a request to the end of a queue. The caller holds mu.
func (l *level) enqueue(req *Request, index int) {
	q := l.joinQueue(req, index)
	q.waiting = append(q.waiting, req)
	q.work += req.work
	l.waiting++
	l.waitingSeats += req.width.maxSeats()
}

// removeWaiting takes a request out of the queue it waits in. The caller holds mu.
func (l *level) removeWaiting(req *Request) bool {
	q := &l.queues[req.queue]
	i := slices.Index(q.waiting, req)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.work -= req.work
	l.waiting--
	l.waitingSeats -= req.width.maxSeats()
	l.deactivateIfIdle(q)
	return true
}

// deactivateIfIdle deactivates a queue without requests. The caller holds mu.
func (l *level) deactivateIfIdle(q *queue) {
	if q.isIdle() {
		l.activeQueues--
		q.work = 0
	}
}

// reserveDivisor divides the limit. The result is the number of seats reserved for flows without a
// running request. Without this reserve, a flow with many slow requests would delay all others.
// Fair queueing does not prevent this, because a flow has several queues and flows share queues.
const reserveDivisor = 8

// hasReserve reports whether the level reserves seats for flows without a running request. It does
// not if each flow may use all queues. The caller holds mu.
func (l *level) hasReserve() bool {
	return l.spec.kind == kindQueue && l.spec.queues > l.spec.handSize
}

// mayRun reports whether a request may run now. A request that needs more seats than the limit runs
// alone. The caller holds mu.
func (l *level) mayRun(req *Request) bool {
	if l.spec.kind == kindExempt {
		return true
	}
	seats := req.width.maxSeats()
	if seats > l.limit {
		return l.running == 0 && l.inUse == 0
	}
	free := l.limit - l.inUse
	if l.hasReserve() && l.flows[req.flowHash] > 0 {
		free -= l.limit / reserveDivisor
	}
	return seats <= free
}

// startWaiting starts requests while there are seats for the next one. If only reserved seats are
// free, it starts the next request of a flow without a running request. A request that is wider
// than the level waits until it can run alone. The caller holds mu.
func (l *level) startWaiting(now time.Time) {
	for l.waiting > 0 {
		// 1. Choose the next request that may run.
		next, index := l.nextQueue()
		if req := next.waiting[0]; !l.mayRun(req) {
			onlyReserveFree := l.flows[req.flowHash] > 0 && l.inUse < l.limit
			if !onlyReserveFree {
				return
			}
			next, index = l.nextQueueOfIdleFlow()
			if next == nil || !l.mayRun(next.waiting[0]) {
				return
			}
		}

		// 2. Take it from its queue and start it.
		req := next.waiting[0]
		next.waiting[0] = nil
		next.waiting = next.waiting[1:]
		if len(next.waiting) == 0 {
			next.waiting = nil
		}
		next.work -= req.work
		l.waiting--
		l.waitingSeats -= req.width.maxSeats()
		l.startFromQueue(next, index, req, now)
		close(req.admitted)
	}
}

// nextQueue returns the queue whose first request would end first in virtual time, and its index, or
// nil if no request waits. The caller holds mu.
func (l *level) nextQueue() (*queue, int) {
	return l.earliestQueue(func(*Request) bool { return true })
}

// nextQueueOfIdleFlow is like nextQueue, but considers only queues whose first request belongs to a
// flow without a running request. The caller holds mu.
func (l *level) nextQueueOfIdleFlow() (*queue, int) {
	return l.earliestQueue(func(first *Request) bool { return l.flows[first.flowHash] == 0 })
}

// earliestQueue returns the queue whose first request would end first in virtual time, among the
// queues whose first request is eligible. The search starts after the queue that was served last.
// The caller holds mu.
func (l *level) earliestQueue(eligible func(first *Request) bool) (best *queue, index int) {
	soonest := math.Inf(1)
	for offset := range l.queues {
		i := (l.lastQueue + 1 + offset) % len(l.queues)
		q := &l.queues[i]
		if len(q.waiting) == 0 {
			continue
		}
		r := q.waiting[0]
		if !eligible(r) {
			continue
		}
		if end := max(q.nextStart, r.virtualArrival) + r.work; end < soonest {
			best = q
			index = i
			soonest = end
		}
	}
	return best, index
}

// resizeQueues adjusts the number of queues to the spec. It removes surplus queues from the end
// once they are idle. The caller holds mu.
func (l *level) resizeQueues() {
	for len(l.queues) < l.spec.queues {
		l.queues = append(l.queues, queue{})
	}
	for n := len(l.queues); n > l.spec.queues && l.queues[n-1].isIdle(); n-- {
		l.queues = l.queues[:n-1]
	}
}
