package overload

import (
	"context"
	"errors"
	"sync"
	"time"

	"binnacle/libs/api"
	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// seatHolder holds the seats of an admitted request. The request has them while the server works on
// it, and releases them while it waits, for example for a client that does not read the response. Its
// methods may be called concurrently, because goroutines of a request may wait in parallel.
//
// A seatHolder has these states:
//
//   - working: waits is 0, and the request has its seats.
//   - waiting: waits is the number of waits. released is set, unless the limit of stalled requests
//     was reached when the request had to release its seats again.
//   - resuming: the last wait is over, released is set, and one goroutine waits for the seats.
//   - ended: close was called.
type seatHolder struct {
	flow *flowcontrol.Controller
	// stalled limits the number of requests that have released their seats.
	stalled *limit.Queue[string]
	ctx     context.Context
	user    client

	mu       sync.Mutex
	request  *flowcontrol.Request // nil after close
	ended    bool                 // close was called
	waits    int                  // number of waits in progress
	released bool                 // the seats are released
	// stalledClaim is the claim of the request on stalled, if countsAsStalled is set.
	stalledClaim    limit.Claim[string]
	countsAsStalled bool
	// resuming is closed when the wait for the seats ends; nil unless the request waits for them.
	resuming   chan struct{}
	pausedAt   time.Time     // when the client stopped reading; zero while it reads
	clientWait time.Duration // total time of waits for the client
}

// pauseForClient releases the seats of a response that has started. It returns false, and keeps
// them, if too many requests have released theirs.
func (h *seatHolder) pauseForClient() bool {
	h.mu.Lock()
	h.pausedAt = time.Now()
	h.mu.Unlock()
	return h.release(true)
}

// release releases the seats for one wait. It returns false, and keeps them, if too many requests
// have released theirs. The limit is higher if started is set: the response has started. If release
// returns true, the caller calls resume once, unless the request ends before.
func (h *seatHolder) release(started bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return true
	}
	if h.waits == 0 && !h.released && !h.releaseSeats(started) {
		return false
	}
	h.waits++
	return true
}

// releaseSeats releases the seats. It returns false if too many requests have released theirs. Half
// of the limit is reserved for requests whose response has started. The caller holds mu.
func (h *seatHolder) releaseSeats(started bool) bool {
	claim := h.user.newClaim(h.stalled, 1)
	if !started { // half of the limit must stay free
		claim.MinFree += h.stalled.Size() / 2
	}
	h.countsAsStalled = h.stalled.TryAcquire(claim)
	if !h.countsAsStalled && !h.user.InGroup(api.GroupMasters) { // the limit never rejects administrators
		return false
	}
	h.stalledClaim = claim
	h.released = true
	h.flow.Suspend(h.request)
	return true
}

// resume finishes one wait. After the last wait it acquires the seats again. If another goroutine
// acquires them already, it waits for that. It returns an error if the request gets no seats in time.
func (h *seatHolder) resume() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.pausedAt.IsZero() {
		h.clientWait += time.Since(h.pausedAt)
		h.pausedAt = time.Time{}
	}
	if h.waits == 0 {
		return nil
	}
	h.waits--
	for h.waits == 0 && h.released && !h.ended {
		if resuming := h.resuming; resuming != nil {
			h.mu.Unlock()
			<-resuming
			h.mu.Lock()
			continue
		}
		if err := h.reacquireSeats(); err != nil {
			return err
		}
	}
	return nil
}

// reacquireSeats waits for the seats. It releases them again if another wait has started in the
// meantime. The caller holds mu, which reacquireSeats unlocks while it waits.
func (h *seatHolder) reacquireSeats() error {
	ctx, cancel := h.extendedContext()
	defer cancel()
	req := h.request // close sets h.request to nil
	done := make(chan struct{})
	h.resuming = done
	h.uncountStalled()

	h.mu.Unlock()
	err := h.flow.Resume(ctx, req)
	h.mu.Lock()

	h.resuming = nil
	close(done)
	switch {
	case h.ended: // close left the seats to this goroutine
		h.flow.Release(req)
	case err == nil:
		h.released = false
		if h.waits > 0 {
			h.releaseSeats(true)
		}
	}
	return err
}

// extendedContext returns the context of the request with a deadline that is later by the time that
// the request has spent waiting for its client. The caller holds mu.
func (h *seatHolder) extendedContext() (context.Context, context.CancelFunc) {
	deadline, ok := h.ctx.Deadline()
	if !ok || h.clientWait == 0 || errors.Is(h.ctx.Err(), context.Canceled) {
		return h.ctx, func() {}
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(h.ctx), deadline.Add(h.clientWait))
	stop := context.AfterFunc(h.ctx, func() {
		if errors.Is(h.ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	return ctx, func() { stop(); cancel() }
}

// uncountStalled removes the request from the stalled requests. The caller holds mu.
func (h *seatHolder) uncountStalled() {
	if h.countsAsStalled {
		h.stalled.Release(h.stalledClaim)
	}
	h.countsAsStalled = false
}

// close releases the seats for good. It may be called at any time and more than once.
func (h *seatHolder) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.uncountStalled()
	if h.ended {
		return
	}
	h.ended = true
	if h.resuming == nil { // otherwise reacquireSeats releases them
		h.flow.Release(h.request)
	}
	h.request = nil // so that a watch, which keeps the seatHolder, does not keep the request in memory
}
