package overload

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"binnacle/libs/limit"
	"binnacle/libs/serving/exchange"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// suspendedBytesTime is how long a suspended request keeps its bytes of memory.
const suspendedBytesTime = time.Second

// workLimits holds the limits that all requests share.
type workLimits struct {
	// bytes limits the memory of large requests that the server works on; nil for no limit.
	bytes *limit.Queue[string]
	// suspendedBytes limits the memory of large requests that wait long for another party, because
	// their objects stay in memory; nil for no limit.
	suspendedBytes *limit.Queue[string]
	// permits limits how many large requests are processed at a time; nil for no limit.
	permits *limit.Queue[string]
}

// newWorkLimits returns the limits for the number of CPUs.
func newWorkLimits(bounds Bounds, permits *limit.Queue[string]) workLimits {
	newByteLimit := func(size int) *limit.Queue[string] {
		return limit.New[string](limit.Options{Size: size, FairShare: true, MaxWaiting: bounds.WaitingBodies})
	}
	working := bounds.LargeBytesPerCPU * max(1, runtime.GOMAXPROCS(0)-1) // one CPU remains for other requests
	return workLimits{bytes: newByteLimit(working), suspendedBytes: newByteLimit(bounds.SuspendedBytes), permits: permits}
}

// work implements request.Work. A request that turns out to be large holds bytes and a permit while
// the server works on it:
//
//   - It releases both when the response starts, and the permit while it waits. Therefore a client
//     that does not read, or a webhook that does not respond, delays no other large request.
//   - If it waits long, it exchanges its bytes for suspended bytes. If none are free, it keeps its
//     bytes. Principals share both fairly, so that the webhook of one client cannot fill the memory
//     with objects that wait for it.
//   - If it has to wait for bytes or the permit, it releases its seats for good. The permit limits it
//     from then on, and no request that holds a permit waits for seats.
type work struct {
	limits workLimits

	// acquiring is held while a goroutine acquires bytes and the permit. Lock order: before mu.
	acquiring sync.Mutex

	mu                sync.Mutex          // lock order: before the mutexes of the limits
	seats             *seatHolder         // nil without flow control
	seatless          bool                // the seats were released for good
	onStarted         func()              // called by Started; may be nil
	bytes             limit.Claim[string] // valid if hasBytes is set
	hasBytes          bool
	inSuspendedBudget bool // bytes is a claim of limits.suspendedBytes
	hasPermit         bool
	suspensions       int  // number of waits for other parties in progress
	ended             bool // the response has ended; work that continues holds nothing
}

// workFrom returns the work of a request. Without one it returns work that has no limit.
func workFrom(ctx context.Context) *work {
	if w, ok := request.WorkFrom(ctx).(*work); ok {
		return w
	}
	return &work{}
}

// attachSeats sets the seats of the request and the function that Started calls. Both may be nil. It
// resets the work, because a request may pass the filters again.
func (w *work) attachSeats(seats *seatHolder, onStarted func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seats = seats
	w.seatless = false
	w.onStarted = onStarted
	w.ended = false
}

// Estimate implements request.Work. Only the first large estimate reserves bytes. All goroutines of
// a request share one permit.
func (w *work) Estimate(ctx context.Context, size int) bool {
	if size < largeBody && !w.needsPermit() {
		return true
	}
	w.acquiring.Lock()
	defer w.acquiring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, maxBodyWait(ctx))
	defer cancel()
	if size >= largeBody && !w.reserveBytes(ctx, size) {
		return false
	}
	return w.acquirePermit(ctx)
}

// reserveBytes waits for bytes, unless the request holds some or has ended. It returns false if it
// gets none in time. The caller holds acquiring.
func (w *work) reserveBytes(ctx context.Context, size int) bool {
	w.mu.Lock()
	needsNone := w.hasBytes || w.ended
	w.mu.Unlock()
	if needsNone {
		return true
	}

	// One principal may hold at most half of the bytes. A larger request waits for that much.
	claim := clientFrom(ctx).newClaim(w.limits.bytes, size)
	claim.Cost = min(size, max(1, (w.limits.bytes.Size()-claim.MinFree)/2))
	if !w.acquireClaim(ctx, w.limits.bytes, claim) {
		return false
	}

	w.mu.Lock()
	ended := w.ended // in the meantime
	w.bytes = claim
	w.hasBytes = !ended
	w.inSuspendedBudget = false
	w.mu.Unlock()
	if ended {
		w.limits.bytes.Release(claim)
	}
	return true
}

// acquirePermit waits for the permit if the request needs one. It returns false if it gets none in
// time. The caller holds acquiring.
func (w *work) acquirePermit(ctx context.Context) bool {
	if !w.needsPermit() {
		return true
	}
	claim := limit.Claim[string]{Key: request.Principal(ctx)}
	if !w.acquireClaim(ctx, w.limits.permits, claim) {
		return false
	}
	if !w.needsPermit() { // the request was suspended or ended at the same time
		w.limits.permits.Release(claim)
		return true
	}
	w.mu.Lock()
	w.hasPermit = true
	w.mu.Unlock()
	return true
}

// acquireClaim acquires a claim of a limit. If it has to wait, it releases the seats first. It
// returns false if too many requests have released theirs, or if ctx ends.
func (w *work) acquireClaim(ctx context.Context, queue *limit.Queue[string], claim limit.Claim[string]) bool {
	if queue.TryAcquire(claim) {
		return true
	}
	if !w.releaseSeats() {
		return false
	}
	return queue.Acquire(ctx, claim) == nil
}

// needsPermit reports whether the request holds bytes, but no permit, and is neither suspended nor
// ended.
func (w *work) needsPermit() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hasBytes && !w.hasPermit && w.suspensions == 0
}

// releaseSeats releases the seats for good. It returns false if too many requests have released
// theirs.
func (w *work) releaseSeats() bool {
	w.mu.Lock()
	seats, seatless := w.seats, w.seatless
	w.mu.Unlock()
	if seats == nil || seatless {
		return true
	}
	if !seats.release(true) {
		return false
	}
	w.mu.Lock()
	w.seatless = true
	w.mu.Unlock()
	return true
}

// Suspend implements request.Work. resume waits for the permit. If there is none in time, the work
// continues without it, because it cannot be undone.
func (w *work) Suspend(ctx context.Context) (resume func()) {
	w.mu.Lock()
	w.suspensions++
	holdsLimits := w.hasBytes || w.onStarted != nil
	w.mu.Unlock()
	w.releasePermit()
	stopTimer := func() bool { return true }
	if holdsLimits {
		stopTimer = time.AfterFunc(suspendedBytesTime, func() { w.handleLongWait(ctx) }).Stop
	}
	return func() {
		stopTimer()
		w.mu.Lock()
		w.suspensions--
		w.mu.Unlock()
		if w.needsPermit() {
			w.Estimate(ctx, 0)
		}
	}
}

// handleLongWait is called when a suspension has lasted for suspendedBytesTime. A long-running or
// delegated request counts as started, because it only waits for another server. Any other request
// exchanges its bytes for suspended bytes.
func (w *work) handleLongWait(ctx context.Context) {
	w.mu.Lock()
	canStart := w.onStarted != nil
	w.mu.Unlock()
	if canStart {
		w.Started()
		return
	}
	w.moveToSuspendedBudget(ctx)
}

// moveToSuspendedBudget exchanges the bytes of a suspended request for suspended bytes, if some are
// free.
func (w *work) moveToSuspendedBudget(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.hasBytes || w.inSuspendedBudget || w.suspensions == 0 {
		return
	}
	claim := clientFrom(ctx).newClaim(w.limits.suspendedBytes, w.bytes.Cost)
	if !w.limits.suspendedBytes.TryAcquire(claim) {
		return
	}
	w.limits.bytes.Release(w.bytes)
	w.bytes = claim
	w.inSuspendedBudget = true
}

// Started implements request.Work.
func (w *work) Started() {
	w.mu.Lock()
	onStarted := w.onStarted
	w.mu.Unlock()
	w.releaseWork()
	if onStarted != nil {
		onStarted()
	}
}

// ReleaseSeats implements request.Work.
func (w *work) ReleaseSeats(started bool) (resume func() error, ok bool) {
	w.mu.Lock()
	seats := w.seats
	w.mu.Unlock()
	if seats == nil {
		return func() error { return nil }, true
	}
	return seats.resume, seats.release(started)
}

// close releases the permit and the bytes for good.
func (w *work) close() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.releaseWork()
}

// releaseWork releases the permit and the bytes. The request may acquire them again.
func (w *work) releaseWork() {
	w.releasePermit()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.hasBytes:
	case w.inSuspendedBudget:
		w.limits.suspendedBytes.Release(w.bytes)
	default:
		w.limits.bytes.Release(w.bytes)
	}
	w.hasBytes = false
	w.inSuspendedBudget = false
}

// releasePermit releases the permit if the request holds it.
func (w *work) releasePermit() {
	w.mu.Lock()
	hadPermit := w.hasPermit
	w.hasPermit = false
	w.mu.Unlock()
	if hadPermit {
		w.limits.permits.Release(limit.Claim[string]{})
	}
}

// WithPermit returns a context for work on behalf of several requests. Any of them may end before the
// work, so that it cannot use their permits. Large work in the context acquires a separate permit.
// end releases it.
func WithPermit(ctx context.Context, permits *limit.Queue[string]) (detached context.Context, end func()) {
	detachedWork := &work{limits: workLimits{permits: permits}}
	detached, state := request.Derive(ctx)
	state.Work = detachedWork
	return detached, detachedWork.close
}

// PrincipalLimiter limits work by permits, which the principals of requests share. responsewriters
// and audit use it.
type PrincipalLimiter struct{ *limit.Queue[string] }

// Acquire waits for a permit, which Release releases.
func (p PrincipalLimiter) Acquire(ctx context.Context) error {
	return p.Queue.Acquire(ctx, limit.Claim[string]{Key: request.Principal(ctx)})
}

// Release releases a permit.
func (p PrincipalLimiter) Release() { p.Queue.Release(limit.Claim[string]{}) }

// SlowPrincipalLimiter is a PrincipalLimiter for work on responses that are slow to encode.
type SlowPrincipalLimiter struct{ PrincipalLimiter }

// Acquire implements responsewriters.SlowLimiter. A request that has to wait releases its seats for
// good, as a large request does. If too many requests have released their seats, it is rejected,
// unless its response has started.
func (p SlowPrincipalLimiter) Acquire(r *http.Request, started bool) error {
	ctx := r.Context()
	if p.TryAcquire(limit.Claim[string]{Key: request.Principal(ctx)}) {
		return nil
	}
	if _, released := request.WorkFrom(ctx).ReleaseSeats(started); !released && !started {
		return status.ManyWait()
	}
	return p.PrincipalLimiter.Acquire(ctx)
}

// startingWriter releases the bytes and the permit of a request when its response starts.
type startingWriter struct {
	http.ResponseWriter
	work *work
}

// WriteHeader implements http.ResponseWriter.
func (response *startingWriter) WriteHeader(code int) {
	if code >= http.StatusOK {
		response.work.releaseWork()
	}
	response.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (response *startingWriter) Write(b []byte) (int, error) {
	response.work.releaseWork()
	return response.ResponseWriter.Write(b)
}

// Flush implements http.Flusher, which watches need.
func (response *startingWriter) Flush() {
	response.work.releaseWork()
	if f, ok := response.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Send implements exchange.Sender.
func (response *startingWriter) Send(b []byte) error {
	response.work.releaseWork()
	return exchange.Send(response.ResponseWriter, b)
}

// Hijack implements http.Hijacker. An upgrade starts the response.
func (response *startingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	response.work.releaseWork()
	return http.NewResponseController(response.ResponseWriter).Hijack()
}

// Unwrap serves http.ResponseController.
func (response *startingWriter) Unwrap() http.ResponseWriter { return response.ResponseWriter }
