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

// seatHolder holds the seats of an admitted request. The request has them
// while the server works on it, and releases them while it waits, for
// example for a client that does not read the response.
type seatHolder struct {
	flow *flowcontrol.Controller
	// stalled limits the number of requests that have released their seats.
	stalled *limit.Queue[string]
	ctx     context.Context
	user    client

	mu      sync.Mutex // pause and end may be called concurrently
	request *flowcontrol.Request
	ended   bool
	// waits is the number of waits in progress. Goroutines of a request may wait in parallel.
	waits    int
	released bool
	// stall is the claim of the request on stalled, if countsAsStalled is set.
	stall           limit.Claim[string]
	countsAsStalled bool
	// resuming is closed when the wait for the seats ends; nil unless the request waits for them.
	resuming chan struct{}
	pausedAt time.Time     // when the client stopped reading; zero while it reads
	waited   time.Duration // total time of waits for the client
}

// pauseForClient releases the seats of a response that has started. It returns false, and keeps
// them, if too many requests have released theirs.
func (h *seatHolder) pauseForClient() bool {
	h.mu.Lock()
	h.pausedAt = time.Now()
	h.mu.Unlock()
	return h.release(true)
}

// release releases the seats for one wait. started reports whether the response has started: the
// limit for such requests is higher. Each call that returns true is followed by one of resume,
// unless the request ends.
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
// of the limit is for requests whose response has started. The caller holds mu.
func (h *seatHolder) releaseSeats(started bool) bool {
	c := h.user.newClaim(h.stalled, 1)
	if !started {
		c.MinFree += h.stalled.Size() / 2
	}
	h.countsAsStalled = h.stalled.TryAcquire(c)
	if !h.countsAsStalled && !h.user.InGroup(api.GroupMasters) {
		return false
	}
	h.stall = c
	h.released = true
	h.flow.Suspend(h.request)
	return true
}

// resume finishes one wait. After the last wait it acquires the seats. It releases them again if
// another wait has started in the meantime. It returns an error if the request has ended.
func (h *seatHolder) resume() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.pausedAt.IsZero() {
		h.waited += time.Since(h.pausedAt)
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

// reacquireSeats waits for the seats. The caller holds mu, which reacquireSeats unlocks while it
// waits.
func (h *seatHolder) reacquireSeats() error {
	ctx, cancel := h.extendedContext()
	defer cancel()
	r := h.request
	done := make(chan struct{})
	h.resuming = done
	h.uncountStalled()
	h.mu.Unlock()
	err := h.flow.Resume(ctx, r)
	h.mu.Lock()
	h.resuming = nil
	close(done)
	switch {
	case h.ended:
		h.flow.Release(r)
	case err == nil:
		h.released = false
		if h.waits > 0 {
			h.releaseSeats(true)
		}
	}
	return err
}

// extendedContext returns the context of the request with a deadline that is later by the time for
// which the request has waited for its client. The caller holds mu.
func (h *seatHolder) extendedContext() (context.Context, context.CancelFunc) {
	deadline, ok := h.ctx.Deadline()
	if !ok || h.waited == 0 || errors.Is(h.ctx.Err(), context.Canceled) {
		return h.ctx, func() {}
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(h.ctx), deadline.Add(h.waited))
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
		h.stalled.Release(h.stall)
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
	if h.resuming == nil {
		h.flow.Release(h.request)
	}
	h.request = nil // a watch keeps the seatHolder for longer
}
