package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"binnacle/libs/api"
	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// seatHolder holds the seats of an admitted request. The request has them while the server works on it,
// and releases them while it waits, for example for a client that does not read the response.
type seatHolder struct {
	flow    *flowcontrol.Controller
	stalled *limit.Queue[string]
	ctx     context.Context
	user    client

	mu      sync.Mutex // pause and end may be called concurrently
	request *flowcontrol.Request
	ended   bool
	// waits is the number of waits in progress. Goroutines of a request may wait in parallel.
	waits    int
	released bool
	// stall is the place in stalled that the request occupies, if countsAsStalled.
	stall           limit.Claim[string]
	countsAsStalled bool
	// resuming is closed when the wait for the seats ends; nil unless the request waits for them.
	resuming chan struct{}
	pausedAt time.Time     // when the client stopped reading; zero while it reads
	waited   time.Duration // total time of waits for the client
}

// pause releases the seats of a response that has begun. It returns false, and keeps them, if too
// many requests have released theirs.
func (t *seatHolder) pause() bool {
	t.mu.Lock()
	t.pausedAt = time.Now()
	t.mu.Unlock()
	return t.release(true)
}

// release releases the seats for one wait. begun reports whether the response has begun: the limit
// for such requests is higher. Each call that returns true is followed by one of resume, unless
// the request ends.
func (t *seatHolder) release(begun bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return true
	}
	if t.waits == 0 && !t.released && !t.releaseSeats(begun) {
		return false
	}
	t.waits++
	return true
}

// releaseSeats releases the seats. It returns false if too many requests have released theirs. The caller
// holds mu.
func (t *seatHolder) releaseSeats(begun bool) bool {
	c := t.user.claim(t.stalled, 1)
	if !begun {
		c.Keep += t.stalled.Size() / 2
	}
	if t.countsAsStalled = t.stalled.TryAcquire(c); !t.countsAsStalled && !t.user.InGroup(api.GroupMasters) {
		return false
	}
	t.stall = c
	t.released = true
	t.flow.Suspend(t.request)
	return true
}

// resume ends one wait. After the last wait it acquires the seats, and releases them again if
// another wait has begun in the meantime. It returns an error if the request has ended.
func (t *seatHolder) resume() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.pausedAt.IsZero() {
		t.waited += time.Since(t.pausedAt)
		t.pausedAt = time.Time{}
	}
	if t.waits == 0 {
		return nil
	}
	t.waits--
	for t.waits == 0 && t.released && !t.ended {
		if resuming := t.resuming; resuming != nil {
			t.mu.Unlock()
			<-resuming
			t.mu.Lock()
			continue
		}
		if err := t.acquire(); err != nil {
			return err
		}
	}
	return nil
}

// acquire waits for the seats. The caller holds mu, which acquire unlocks while it waits.
func (t *seatHolder) acquire() error {
	ctx, cancel := t.extendedContext()
	defer cancel()
	r, done := t.request, make(chan struct{})
	t.resuming = done
	t.endStall()
	t.mu.Unlock()
	err := t.flow.Resume(ctx, r)
	t.mu.Lock()
	t.resuming = nil
	close(done)
	switch {
	case t.ended:
		t.flow.End(r)
	case err == nil:
		t.released = false
		if t.waits > 0 {
			t.releaseSeats(true)
		}
	}
	return err
}

// extendedContext returns the context of the request with a deadline that is later by the time for
// which the request has waited for its client. The caller holds mu.
func (t *seatHolder) extendedContext() (context.Context, context.CancelFunc) {
	deadline, ok := t.ctx.Deadline()
	if !ok || t.waited == 0 || errors.Is(t.ctx.Err(), context.Canceled) {
		return t.ctx, func() {}
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(t.ctx), deadline.Add(t.waited))
	stop := context.AfterFunc(t.ctx, func() {
		if errors.Is(t.ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	return ctx, func() { stop(); cancel() }
}

// endStall releases the place among the stalled requests. The caller holds mu.
func (t *seatHolder) endStall() {
	if t.countsAsStalled {
		t.stalled.Release(t.stall)
	}
	t.countsAsStalled = false
}

// end releases the seats for good. It may be called at any time and more than once.
func (t *seatHolder) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.endStall(); t.ended {
		return
	}
	if t.ended = true; t.resuming == nil {
		t.flow.End(t.request)
	}
	t.request = nil // a watch keeps the seatHolder for longer
}
