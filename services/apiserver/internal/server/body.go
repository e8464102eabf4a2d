package server

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

const (
	// bodyBytesPerCPU is the memory in bytes, for each CPU, that the bodies of one priority level may
	// occupy together. minBodyBytes is the minimum.
	bodyBytesPerCPU = 8 << 20
	minBodyBytes    = 32 << 20
	// largeBody is the size in bytes from which a body counts as large. Only the work on large bodies is
	// limited. largeBytesPerCPU is the limit in bytes for each CPU but one, which remains for other requests.
	largeBody        = request.LargeBody
	largeBytesPerCPU = 3 << 20
	// largeURL is the size in bytes from which the URL of a request adds to its cost.
	largeURL = 4 << 10
	// costFactor is the factor for a body that is not decoded directly. costFactorYAML is the factor for
	// YAML, whose conversion to JSON takes as long as decoding, checking and storing the result.
	costFactor     = 4
	costFactorYAML = 16
	// minCosted is the size in bytes below which no body counts as large.
	minCosted    = 512
	costPerValue = request.PerValue
	// minBodySize is the minimum size in bytes that a body counts. A request takes that much memory anyway.
	minBodySize = 4 << 10
	// maxWaiters is the maximum number of bodies of one principal that wait for bytes.
	maxWaiters = 1000
	// bodyWaitShare is the divisor of a request's remaining time that gives its maximum wait.
	bodyWaitShare = 4
	// maxSeatWait is how long a request with a permit may wait for its seats before it must release the permit.
	maxSeatWait = 10 * time.Millisecond
	// bodyWaitWithoutDeadline is the maximum wait of requests without a deadline.
	bodyWaitWithoutDeadline = 15 * time.Second
)

// withBody reads the bodies of authorized requests. A request releases its seats while its body arrives.
// The memory of bodies is limited for each priority level and shared fairly among the principals of the
// level. A body counts with the bytes that have arrived, not with its announced length. Work on large
// bodies has a limit of its own, because an object takes many times the memory of its text.
func (c *Config) withBody(next http.Handler) http.Handler {
	cpus := runtime.GOMAXPROCS(0)
	levels, large := newLevelBudgets(max(minBodyBytes, bodyBytesPerCPU*cpus)), newByteBudget(largeBytesPerCPU*max(1, cpus-1))
	return limitBodies(levels, large, c.LargeRequests, c.Metrics.bodies, next)
}

// limitBodies is withBody with the given limits.
func limitBodies(levels *levelBudgets, large *byteBudget, limiter serving.LargeRequests, sizes *bodySizes, next http.Handler) http.Handler {
	large.fair.strict = true
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		op, u := requestinfo.From(ctx), clientOf(ctx)
		cost, mayGrow := urlCost(op, r), slices.Contains([]string{"patch", "update", "delete", "deletecollection"}, op.Verb) // these read stored objects, which may be large
		received := 0
		if hasBody(op, r) {
			level := request.PriorityLevel(ctx)
			reserved := &reservedBody{budget: levels.acquire(level), ctx: ctx, user: u}
			defer serving.AtEnd(w, func(any) {
				reserved.release()
				levels.release(level)
			})
			body, err := reserved.receive(w, r)
			if err != nil && ctx.Err() == nil { // the request has no seats to continue with
				tooManyRequests(w, 1)
				return
			}
			received = len(body)
			sizes.observe(op, received)
			request.Step(ctx, request.StepBody)
			cost += bodyCost(body, r)
			mayGrow = true // the decoded object may be far larger than the text
		}
		if cost == 0 && !mayGrow {
			next.ServeHTTP(w, r)
			return
		}
		work := &largeWork{ResponseWriter: w, ctx: ctx, user: u, budget: large, limiter: limiter, request: r, acquiring: make(chan struct{}, 1)}
		defer serving.AtEnd(w, func(any) { work.end() })
		if size := bytesFor(received, cost); size > 0 && !work.reserve(size) {
			tooManyRequests(w, 1)
			return
		}
		request.SetWeigh(ctx, func(size int) bool {
			return (size < largeBody || work.reserve(size)) && work.acquirePermit()
		})
		request.SetAside(ctx, work.suspendPermit)
		request.SetSuspend(ctx, work.suspend)
		if !request.SetBegun(ctx, work.release) {
			r = r.WithContext(request.WithBegun(ctx, work.release))
		}
		next.ServeHTTP(work, r)
	})
}

// bytesFor returns the memory in bytes to reserve for a body of a size and cost, 0 for one that is not
// large. A cost stands for time. The memory for the same work is a quarter of it.
func bytesFor(body, cost int) int {
	if cost == 0 {
		return 0
	}
	return max(largeBody, body, cost/4)
}

// largeWork is the response writer of a request that is large or may turn out to be. It holds bytes of
// budget and a permit of limiter while the server works on the request. It releases both when the
// response begins or when the request waits long for webhooks or the store. A client that does not
// read, or a webhook that does not answer, therefore delays no other large request.
type largeWork struct {
	http.ResponseWriter
	ctx     context.Context
	user    client
	request *http.Request
	budget  *byteBudget
	limiter serving.LargeRequests

	acquiring chan struct{} // capacity 1; full while a goroutine waits for the permit
	reserving sync.Mutex    // serializes reserve; lock order: before mu

	mu           sync.Mutex // lock order: before those of budget and limiter
	releaseBytes func()     // releases the held bytes; nil if none are held
	size         int        // the bytes held last
	// waits is the number of waits in progress without the bytes. suspendedSize is the number of bytes
	// to acquire after the last of them.
	waits, suspendedSize int
	hasPermit            bool
	// wantsPermit reports whether the work has asked for a permit, which it acquires again after each wait.
	wantsPermit bool
	// ended reports whether the response has ended. Work that continues after it holds no bytes.
	ended bool
	// hasSeats is false while the request waits for its seats.
	hasSeats    bool
	suspensions int // number of waits for other servers
}

// waitForBytes waits for bytes of the budget, unless the request has some or needs none.
func (w *largeWork) waitForBytes(size int) bool {
	if size == 0 || w.hasBytes() {
		return true
	}
	release, ok := w.budget.acquire(w.ctx, w.user, min(size, w.budget.maxShare()))
	if ok {
		w.setBytes(release, min(size, w.budget.maxShare()))
	}
	return ok
}

// reserve is waitForBytes for a request that may hold seats. It releases the seats while it waits, because
// requests that hold bytes may be waiting for seats.
func (w *largeWork) reserve(size int) bool {
	w.reserving.Lock()
	defer w.reserving.Unlock()
	if w.hasBytes() {
		return true
	}
	if release, ok := w.budget.tryAcquire(w.user, min(size, w.budget.maxShare())); ok {
		w.setBytes(release, min(size, w.budget.maxShare()))
		return true
	}
	return w.withoutSeats(func() bool { return w.waitForBytes(size) })
}

// acquirePermit waits for the permit, unless the request holds no bytes. All goroutines of a request share
// one permit.
func (w *largeWork) acquirePermit() bool {
	w.mu.Lock()
	w.wantsPermit = w.releaseBytes != nil
	wanted := w.wantsPermit
	w.mu.Unlock()
	if !wanted {
		return true
	}
	ctx, cancel := context.WithTimeout(w.ctx, maxBodyWait(w.ctx))
	defer cancel()
	select {
	case w.acquiring <- struct{}{}:
		defer func() { <-w.acquiring }()
	case <-ctx.Done():
		return false
	}
	if w.tryAcquirePermit() {
		return true
	}
	return w.acquireWithoutSeats(ctx) && (w.tryAcquirePermit() || w.waitForPermit(ctx, w.limiter.EnterFirst))
}

// acquireWithoutSeats waits for the permit without the request's seats. If the seats take longer than
// maxSeatWait afterwards, it releases the permit, and the caller acquires it again with the seats.
func (w *largeWork) acquireWithoutSeats(ctx context.Context) bool {
	w.setHasSeats(false)
	defer w.setHasSeats(true)
	return w.withoutSeats(func() bool {
		acquired := w.waitForPermit(ctx, w.limiter.Enter)
		time.AfterFunc(maxSeatWait, w.releaseUnlessSeated)
		return acquired
	})
}

func (w *largeWork) setHasSeats(hasSeats bool) {
	w.mu.Lock()
	w.hasSeats = hasSeats
	w.mu.Unlock()
}

// releaseUnlessSeated releases the permit unless the request has its seats.
func (w *largeWork) releaseUnlessSeated() {
	w.mu.Lock()
	release := w.hasPermit && !w.hasSeats
	w.hasPermit = w.hasPermit && w.hasSeats
	w.mu.Unlock()
	if release {
		w.limiter.Leave()
	}
}

// tryAcquirePermit acquires the permit if it needs no wait. It returns true if the request needs none.
func (w *largeWork) tryAcquirePermit() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.releaseBytes == nil || w.hasPermit || w.suspensions > 0 {
		return true
	}
	w.hasPermit = w.limiter.EnterNow()
	return w.hasPermit
}

// waitForPermit waits for the permit with enter. It releases the permit at once if the request does not
// need it any more.
func (w *largeWork) waitForPermit(ctx context.Context, enter func(*http.Request) error) bool {
	if enter(w.request.WithContext(ctx)) != nil {
		return false
	}
	w.mu.Lock()
	w.hasPermit = w.releaseBytes != nil && w.suspensions == 0
	needed := w.hasPermit
	w.mu.Unlock()
	if !needed {
		w.limiter.Leave()
	}
	return true
}

// suspendPermit releases the permit while the request waits for another server, until back is called.
func (w *largeWork) suspendPermit() (back func()) {
	w.mu.Lock()
	hadPermit := w.hasPermit
	w.hasPermit = false
	w.suspensions++
	w.mu.Unlock()
	if hadPermit {
		w.limiter.Leave()
	}
	return func() {
		w.mu.Lock()
		w.suspensions--
		wanted := w.wantsPermit
		w.mu.Unlock()
		if wanted {
			w.acquirePermit() // on failure the work continues without a permit, because it cannot be undone
		}
	}
}

// suspend releases the permit and the bytes until back is called. Goroutines of a request may wait in
// parallel; the last back acquires the bytes again. If that fails, the work continues without them,
// because it cannot be undone.
func (w *largeWork) suspend() (back func()) {
	resumePermit := w.suspendPermit()
	w.mu.Lock()
	releaseBytes := w.releaseBytes
	if releaseBytes != nil {
		w.suspendedSize = w.size
	}
	w.releaseBytes = nil
	w.waits++
	w.mu.Unlock()
	if releaseBytes != nil {
		releaseBytes()
	}
	return func() {
		w.mu.Lock()
		size := 0
		if w.waits--; w.waits == 0 {
			size, w.suspendedSize = w.suspendedSize, 0
		}
		w.mu.Unlock()
		if size > 0 {
			w.reserve(size)
		}
		resumePermit()
	}
}

// withoutSeats releases the request's seats while wait runs. If wait fails, or the seats cannot be acquired
// again, it ends the work and returns false.
func (w *largeWork) withoutSeats(wait func() bool) bool {
	back, ok := request.ReleaseSeats(w.ctx, true)
	if ok {
		acquired := wait()
		ok = back() == nil && acquired // the request needs its seats to report the failure
	}
	if !ok {
		w.release()
	}
	return ok
}

// hasBytes reports whether the request holds bytes of the budget.
func (w *largeWork) hasBytes() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.releaseBytes != nil
}

// setBytes records acquired bytes, or releases them if the response has ended.
func (w *largeWork) setBytes(release func(), size int) {
	w.mu.Lock()
	ended := w.ended
	if !ended {
		w.releaseBytes, w.size = release, size
	}
	w.mu.Unlock()
	if ended {
		release()
	}
}

// end releases the permit and the bytes for good.
func (w *largeWork) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.release()
}

// release releases the permit and the bytes.
func (w *largeWork) release() {
	w.mu.Lock()
	releaseBytes, hasPermit := w.releaseBytes, w.hasPermit
	w.releaseBytes, w.hasPermit = nil, false
	w.mu.Unlock()
	if hasPermit {
		w.limiter.Leave()
	}
	if releaseBytes != nil {
		releaseBytes()
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *largeWork) WriteHeader(code int) {
	if code >= http.StatusOK {
		w.release()
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *largeWork) Write(b []byte) (int, error) {
	w.release()
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher, which watches need.
func (w *largeWork) Flush() {
	w.release()
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Send implements serving.Sender.
func (w *largeWork) Send(b []byte) error {
	w.release()
	return serving.Send(w.ResponseWriter, b)
}

// Hijack implements http.Hijacker. An upgrade begins the response.
func (w *largeWork) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.release()
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap serves http.ResponseController.
func (w *largeWork) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// hasBody reports whether a request has a body that a handler reads. A body that announces
// too much is left to the handler, which rejects it.
func hasBody(op *requestinfo.Info, r *http.Request) bool {
	known := op.Target != nil || op.Foreign != nil
	return known && op.Writes() && !op.LongRunning() && r.ContentLength != 0 && r.ContentLength <= request.MaxBody
}

// maxBodyWait returns how long a request may wait for bytes or a permit.
func maxBodyWait(ctx context.Context) time.Duration {
	at, ok := ctx.Deadline()
	if !ok {
		return bodyWaitWithoutDeadline
	}
	return time.Until(at) / bodyWaitShare
}

// withWorkLimit admits a request with a large body or URL when it has a permit.
func (c *Config) withWorkLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !request.Weigh(r.Context(), 0) {
			tooManyRequests(w, 1)
			return
		}
		next.ServeHTTP(w, r)
	})
}
