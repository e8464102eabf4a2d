package flowcontrol

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// guess is how long a request is thought to run until it has ended.
const guess = 3 * time.Millisecond

// queue holds requests of the flows that were dealt it, the oldest first.
type queue struct {
	waiting []*Request
	running int // requests that came out of it and have not ended
	seats   int // that these hold
	// next is the virtual time at which the next of its requests begins.
	next float64
	// work of all that wait, in seat-seconds.
	work float64
}

func (q *queue) idle() bool { return len(q.waiting) == 0 && q.running == 0 }

// deal picks a hand of different numbers below n by a hash.
func deal(hash uint64, n, hand int, out []int) []int {
	r := rand.NewPCG(hash, hash^0x9e3779b97f4a7c15)
	for len(out) < hand {
		// Drawing again is cheap as hands are small; a hand of all is taken as
		// it stands.
		if hand == n {
			out = append(out, len(out))
			continue
		}
		if i := int(r.Uint64() % uint64(n)); !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	return out
}

// choose the queue of a flow: of its hand the one with the least work before it.
// The caller holds mu.
func (l *level) choose(hash uint64) int {
	var hand [16]int
	best, least := -1, math.Inf(1)
	for _, i := range deal(hash, l.plan.queues, min(l.plan.hand, len(hand)), hand[:0]) {
		q := &l.queues[i]
		if work := q.work + float64(q.seats)*guess.Seconds(); work < least {
			best, least = i, work
		}
	}
	return best
}

// advance moves virtual time on: each queue with something to do gets an equal
// part of the seats that are wanted. The caller holds mu.
func (l *level) advance(now time.Time) {
	if l.busy > 0 {
		wanted := float64(min(l.inUse+l.waitingSeats, max(l.limit, 1))) // without seats one runs at a time
		l.virtual += now.Sub(l.seen).Seconds() * wanted / float64(l.busy)
	}
	l.seen = now
}

// arrive notes that a request came to a queue. The caller holds mu.
func (l *level) arrive(r *Request, i int) *queue {
	q := &l.queues[i]
	if q.idle() {
		l.busy++
		q.next = l.virtual
	}
	r.queue, r.virtual = i, l.virtual
	return q
}

// pass lets a request run that need not wait: what enqueue and dispatch come to where
// nothing waits. The caller holds mu.
func (l *level) pass(r *Request, i int, now time.Time) {
	l.begin(l.arrive(r, i), i, r, now)
}

// begin lets a request of a queue run. The caller holds mu.
func (l *level) begin(q *queue, i int, r *Request, now time.Time) {
	q.next = max(q.next, r.virtual) + r.work
	q.running++
	l.flows[r.hash]++
	q.seats += r.width.most()
	l.robin = i
	l.metrics.dispatched(r, q.next-r.work, q.next)
	l.start(r, now)
}

// enqueue puts a request at the end of a queue. The caller holds mu.
func (l *level) enqueue(r *Request, i int) {
	q := l.arrive(r, i)
	q.waiting = append(q.waiting, r)
	q.work += r.work
	l.waiting++
	l.waitingSeats += r.width.most()
}

// remove takes a request out of the queue it waits in. The caller holds mu.
func (l *level) remove(r *Request) bool {
	q := &l.queues[r.queue]
	i := slices.Index(q.waiting, r)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.work -= r.work
	l.waiting--
	l.waitingSeats -= r.width.most()
	l.rest(q)
	return true
}

// rest notes that a queue may have nothing left to do. The caller holds mu.
func (l *level) rest(q *queue) {
	if q.idle() {
		l.busy--
		q.work = 0
	}
}

// dispatch lets requests run as long as there are seats for the one whose turn it
// is, or, where the reserve is left, for the first of the flows that it is for. One
// that is wider than the level waits until it has it alone. The caller holds mu.
func (l *level) dispatch(now time.Time) {
	for l.waiting > 0 {
		q, i := l.turn(false)
		if r := q.waiting[0]; !l.fits(r) {
			if l.flows[r.hash] == 0 || l.inUse >= l.limit {
				return
			}
			if q, i = l.turn(true); q == nil || !l.fits(q.waiting[0]) {
				return
			}
		}
		r := q.waiting[0]
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		if len(q.waiting) == 0 {
			q.waiting = nil
		}
		q.work -= r.work
		l.waiting--
		l.waitingSeats -= r.width.most()
		l.begin(q, i, r, now)
		close(r.turn)
	}
}

// turn is the queue whose first request would end first, of all or of those whose first request is
// of a flow of which none runs; nil if there is none. The caller holds mu.
func (l *level) turn(idle bool) (best *queue, at int) {
	soonest := math.Inf(1)
	for n := range l.queues {
		i := (l.robin + 1 + n) % len(l.queues)
		q := &l.queues[i]
		if len(q.waiting) == 0 {
			continue
		}
		r := q.waiting[0]
		if idle && l.flows[r.hash] > 0 {
			continue
		}
		if end := max(q.next, r.virtual) + r.work; end < soonest {
			best, at, soonest = q, i, end
		}
	}
	return best, at
}

// resize makes room for as many queues as the plan has. Those beyond go when
// nothing is in them or behind them. The caller holds mu.
func (l *level) resize() {
	for len(l.queues) < l.plan.queues {
		l.queues = append(l.queues, queue{})
	}
	for n := len(l.queues); n > l.plan.queues && l.queues[n-1].idle(); n-- {
		l.queues = l.queues[:n-1]
	}
}
