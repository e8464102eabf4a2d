package flowcontrol

import (
	"context"
	"sync"
	"time"
)

// level is the state of a priority level.
type level struct {
	name string

	mu   sync.Mutex // leaf lock
	spec *levelSpec
	seatBounds
	// limit is the current number of seats, after lending and borrowing.
	limit int

	// listHead is the head of the list of all running and waiting requests, for the dumps.
	listHead *Request

	running      int // number of running requests
	inUse        int // seats of running requests, plus finalSeats
	finalSeats   int // seats that ended requests still occupy (Width.Final)
	waiting      int // number of waiting requests
	waitingSeats int // number of seats that waiting requests need

	queues       []queue
	activeQueues int            // queues with waiting or running requests
	flows        map[uint64]int // running requests that were queued, by flowHash
	// virtual is the virtual time in seat-seconds at virtualAt.
	virtual   float64
	virtualAt time.Time
	lastQueue int // index of the queue that was served last

	demand timeIntegral
	stats  demandStats
	// quiescing means that the level was removed from the configuration and gets no new requests.
	quiescing bool

	counts     counts
	retryAfter rejectionBackoff
	metrics    *levelMetrics
}

// counts holds the numbers of requests of a level since it was created.
type counts struct{ dispatched, rejected, timedOut, cancelled int }

// applySpec applies a spec and the bounds of the limit. Waiting requests that have seats now start.
func (l *level) applySpec(spec *levelSpec, bounds seatBounds, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	isNew := l.spec == nil
	oldBounds := l.seatBounds
	oldLimit := l.limit

	l.spec = spec
	l.seatBounds = bounds
	if isNew {
		l.virtualAt = now
		l.limit = bounds.nominal
		l.flows = map[uint64]int{}
		l.demand.startWindow(now)
	}
	l.quiescing = false
	l.advanceVirtualTime(now)
	l.limit = min(max(l.limit, bounds.lower), bounds.upper)
	l.resizeQueues()

	if isNew || l.seatBounds != oldBounds || l.limit != oldLimit {
		l.metrics.recordLimits(l)
	}
	if len(l.queues) > 0 {
		l.startWaiting(now)
	}
}

// isIdle reports whether the level has no requests and no final seats. The caller holds mu.
func (l *level) isIdle() bool { return l.running == 0 && l.waiting == 0 && l.inUse == 0 }

// admit starts, queues or rejects a request. It returns the reason of a rejection, or "". A queued
// request runs when r.admitted is closed. hash returns the hash of the request's flow; only levels
// with queues call it.
func (l *level) admit(req *Request, now time.Time, hash func() uint64) (reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advanceVirtualTime(now)
	if l.spec.kind != kindQueue {
		if !l.mayRun(req) {
			return l.countRejection(now, reasonConcurrency)
		}
		l.startUnqueued(req, now)
		return ""
	}
	req.flowHash = hash()
	queue := l.chooseQueue(req.flowHash)
	// A full queue accepts one more request for each free seat, if the request itself may run.
	// Seats are free although requests wait if the next request is wide, or because of the reserve.
	excess := len(l.queues[queue].waiting) - l.spec.queueLength
	freeSeats := l.limit - l.inUse
	if excess >= 0 && (excess >= freeSeats || !l.mayRun(req)) {
		return l.countRejection(now, reasonQueueFull)
	}
	l.enqueueOrStart(req, queue, now)
	return ""
}

// readmitSuspended starts or queues a suspended request. It returns false if the level has no queues
// and the request may not run now.
func (l *level) readmitSuspended(req *Request, now time.Time, hash func() uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advanceVirtualTime(now)
	if l.spec.kind == kindQueue {
		req.flowHash = hash()
		l.enqueueOrStart(req, l.chooseQueue(req.flowHash), now)
		return true
	}
	if !l.mayRun(req) {
		return false
	}
	l.startUnqueued(req, now)
	return true
}

// startUnqueued starts a request of a level without queues. The caller holds mu.
func (l *level) startUnqueued(req *Request, now time.Time) {
	req.queue = noQueue
	l.addToList(req)
	l.start(req, now)
	l.recordDemand(now)
}

// enqueueOrStart adds a request to the queue with an index, or starts it if it need not wait. The caller holds mu.
func (l *level) enqueueOrStart(req *Request, queue int, now time.Time) {
	l.addToList(req)
	if l.waiting == 0 && l.mayRun(req) {
		l.startThroughQueue(req, queue, now)
	} else {
		req.admitted = make(chan struct{})
		l.enqueue(req, queue)
		l.startWaiting(now)
	}
	if !req.suspended {
		req.schema.lengths.Observe(float64(max(1, len(l.queues[queue].waiting))))
	}
	l.recordDemand(now)
}

// countRejection counts a rejection and returns its reason. The caller holds mu.
func (l *level) countRejection(now time.Time, reason string) string {
	l.counts.rejected++
	l.retryAfter.recordRejection(now)
	return reason
}

// start marks a request as running. The caller holds mu.
func (l *level) start(req *Request, now time.Time) {
	req.started = now
	l.running++
	l.inUse += req.width.maxSeats()
	l.counts.dispatched++
}

// cancelWaiting removes a waiting request. It returns false if the request runs already.
func (l *level) cancelWaiting(req *Request, now time.Time, reason string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advanceVirtualTime(now)
	if !req.started.IsZero() || !l.removeWaiting(req) {
		return false
	}
	l.removeFromList(req)
	if reason == reasonCancelled {
		l.counts.cancelled++
	} else {
		l.counts.timedOut++
		l.retryAfter.recordRejection(now)
	}
	l.startWaiting(now) // narrower requests may have waited behind it
	l.recordDemand(now)
	return true
}

// finalSeatsDivisor divides the limit. The result is the maximum number of final seats. Without a
// maximum, the writes of one user with many watchers could occupy the whole level.
const finalSeatsDivisor = 2

// finish removes a running request and releases its seats. Its final seats stay occupied for
// width.AdditionalLatency.
func (l *level) finish(req *Request, now time.Time) {
	l.mu.Lock()
	l.advanceVirtualTime(now)
	// 1. Release all seats except the final ones.
	l.running--
	l.removeFromList(req)
	finalSeats := 0
	if req.width.AdditionalLatency > 0 {
		maximum := max(l.limit/finalSeatsDivisor, 1)
		finalSeats = min(req.width.Final, max(maximum-l.finalSeats, 0))
	}
	l.finalSeats += finalSeats
	l.inUse -= req.width.maxSeats() - finalSeats

	// 2. Account for the request in its queue and flow.
	if req.queue != noQueue {
		ownQueue := &l.queues[req.queue]
		ownQueue.seats -= req.width.maxSeats()
		// The queue was charged for an estimated duration. Charge it for the real one instead.
		ownQueue.nextStart += (now.Sub(req.started) - estimatedDuration).Seconds() * float64(req.width.Seats)
		ownQueue.running--
		l.deactivateIfIdle(ownQueue)
		l.flows[req.flowHash]--
		if l.flows[req.flowHash] == 0 {
			delete(l.flows, req.flowHash)
		}
	}
	l.admitWaiting(now)
	l.mu.Unlock()

	// 3. Release the final seats later.
	if finalSeats > 0 {
		time.AfterFunc(req.width.AdditionalLatency, func() {
			now := l.metrics.now()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.advanceVirtualTime(now)
			l.inUse -= finalSeats
			l.finalSeats -= finalSeats
			l.admitWaiting(now)
		})
	}
}

// admitWaiting starts waiting requests after seats became free. The caller holds mu.
func (l *level) admitWaiting(now time.Time) {
	if l.waiting > 0 {
		l.startWaiting(now)
	}
	l.recordDemand(now)
}

// recordDemand records the number of seats that requests occupy or wait for. The caller holds mu.
func (l *level) recordDemand(now time.Time) {
	l.demand.setValue(now, float64(l.inUse+l.waitingSeats))
	l.metrics.recordLoad(l, now)
}

// addToList adds a request to the list of all requests. The caller holds mu.
func (l *level) addToList(req *Request) {
	req.next = l.listHead
	if req.next != nil {
		req.next.previous = req
	}
	l.listHead = req
}

// removeFromList removes a request from the list. The caller holds mu.
func (l *level) removeFromList(req *Request) {
	if req.previous != nil {
		req.previous.next = req.next
	} else {
		l.listHead = req.next
	}
	if req.next != nil {
		req.next.previous = req.previous
	}
	req.next = nil
	req.previous = nil
}

// maxRetryAfter is the maximum Retry-After in seconds.
const maxRetryAfter = 32

// rejectionBackoff computes the Retry-After of a level from its rate of rejections.
type rejectionBackoff struct {
	seconds     int       // current Retry-After; 0 stands for 1
	windowStart time.Time // zero before the first rejection
	rejections  int       // in the current window
}

// recordRejection counts a rejection. A window is as long as the current Retry-After. With more
// than three rejections per second in a window, Retry-After doubles. With fewer than one, it
// decreases.
func (r *rejectionBackoff) recordRejection(now time.Time) {
	r.seconds = max(r.seconds, 1)
	window := time.Duration(r.seconds) * time.Second
	if r.windowStart.IsZero() {
		r.windowStart = now
	}
	elapsed := now.Sub(r.windowStart)
	if elapsed >= window {
		missedWindow := elapsed >= 2*window // a whole window passed without a rejection
		switch {
		case r.rejections > 3*r.seconds && !missedWindow:
			r.seconds = min(2*r.seconds, maxRetryAfter)
		case r.rejections < r.seconds || missedWindow:
			r.seconds = max(r.seconds-int(elapsed/window), 1)
		}
		r.windowStart = now
		r.rejections = 0
	}
	r.rejections++
}

// retryAfterSeconds returns the Retry-After of the next rejection.
func (r *rejectionBackoff) retryAfterSeconds() int { return max(r.seconds, 1) }

// retryInterval is the interval at which a suspended request retries to acquire seats in a level
// without queues.
const retryInterval = 100 * time.Millisecond

// Suspend releases the seats of a request while it waits, for example for its client. It does
// nothing if the request has ended or is suspended. Suspend, Resume and End of one request must not
// be called concurrently.
func (c *Controller) Suspend(req *Request) {
	if req.suspended || req.ended.Load() {
		return
	}
	req.suspended = true
	c.stopRunning(req)
}

// Resume waits until a suspended request has its seats again. Queue length limits do not apply,
// because the request was admitted before. It returns an error only if ctx ends; the request then
// stays suspended.
func (c *Controller) Resume(ctx context.Context, req *Request) error {
	if !req.suspended || req.ended.Load() {
		return nil
	}
	// Suspend has accounted for the final seats.
	req.width = Width{Seats: req.width.Seats}
	req.work = req.width.estimatedWork()
	req.started = time.Time{}
	req.admitted = nil
	l := req.schema.level
	for !l.readmitSuspended(req, c.Now(), func() uint64 { return c.flowHash(req) }) {
		if err := waitRetryInterval(ctx); err != nil {
			return err
		}
	}
	if req.admitted != nil {
		select {
		case <-req.admitted:
		case <-ctx.Done():
			if l.cancelWaiting(req, c.Now(), reasonCancelled) {
				return ctx.Err()
			}
			<-req.admitted
		}
	}
	req.suspended = false
	c.recordRunning(req)
	return nil
}

// waitRetryInterval waits for retryInterval. It returns an error if ctx ends first.
func waitRetryInterval(ctx context.Context) error {
	timer := time.NewTimer(retryInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// recordRunning records that a request has its seats.
func (c *Controller) recordRunning(req *Request) {
	req.schema.addRunning(req, 1)
	c.Metrics.recordRunning(executingReads, req.mutating, 1, req.started)
}

// stopRunning releases the seats of a request.
func (c *Controller) stopRunning(req *Request) {
	now := c.Now()
	req.ranFor += now.Sub(req.started)
	req.schema.addRunning(req, -1)
	c.Metrics.recordRunning(executingReads, req.mutating, -1, now)
	req.schema.level.finish(req, now)
}
