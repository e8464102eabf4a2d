package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// maxStalled is the number of stalled responses that may release their seats at the same time. Each
// one holds a buffer and the objects that it shows.
const maxStalled = 1000

// turn holds the seats of an admitted request. The request has them while the server works on it,
// and releases them while it waits, for example for a client that does not read the response.
type turn struct {
	flow    *flowcontrol.Controller
	stalled *slots
	ctx     context.Context
	user    client

	mu      sync.Mutex // pause may be called at any time
	request *flowcontrol.Request
	over    bool
	// waits is the number of waits in progress. Goroutines of a request may wait in parallel.
	waits int
	away  bool // the seats are released
	held  bool // a place among the stalled
	// resuming is closed when the request has its seats again; nil unless it waits for them.
	resuming chan struct{}
	paused   time.Time     // when the client stopped reading; zero while it reads
	waited   time.Duration // total time of waits for the client
}

// pause releases the seats of a response that has begun. It returns false, and keeps them, if too
// many requests have released theirs.
func (t *turn) pause() bool {
	t.mu.Lock()
	t.paused = time.Now()
	t.mu.Unlock()
	return t.giveBack(true)
}

// giveBack releases the seats for one wait. begun reports whether the response has begun: more of
// such requests may be away. Each call that returns true is followed by one of resume, unless the
// request ends.
func (t *turn) giveBack(begun bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return true
	}
	if t.waits == 0 && !t.away && !t.goAway(begun) {
		return false
	}
	t.waits++
	return true
}

// goAway releases the seats. It returns false if too many requests have released theirs. The caller
// holds mu.
func (t *turn) goAway(begun bool) bool {
	var ok bool
	if t.held, ok = t.stalled.enterFor(t.user, 1, begun); !ok {
		return false
	}
	t.away = true
	t.flow.Pause(t.request)
	return true
}

// resume ends one wait. After the last wait it acquires the seats, and releases them again if
// another wait has begun in the meantime. It returns an error if the request has ended.
func (t *turn) resume() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.paused.IsZero() {
		t.waited += time.Since(t.paused)
		t.paused = time.Time{}
	}
	if t.waits == 0 {
		return nil
	}
	t.waits--
	for t.waits == 0 && t.away && !t.over {
		if coming := t.resuming; coming != nil {
			t.mu.Unlock()
			<-coming
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
func (t *turn) acquire() error {
	ctx, cancel := t.extended()
	defer cancel()
	r, came := t.request, make(chan struct{})
	t.resuming = came
	t.leaveStalled()
	t.mu.Unlock()
	err := t.flow.Resume(ctx, r)
	t.mu.Lock()
	t.resuming = nil
	close(came)
	switch {
	case t.over:
		t.flow.End(r)
	case err == nil:
		t.away = false
		if t.waits > 0 {
			t.goAway(true)
		}
	}
	return err
}

// extended returns the context of the request with a deadline that is later by the time for
// which the request has waited for its client. The caller holds mu.
func (t *turn) extended() (context.Context, context.CancelFunc) {
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

// leaveStalled releases the place among the stalled requests. The caller holds mu.
func (t *turn) leaveStalled() {
	if t.held {
		t.stalled.leave(t.user, 1)
	}
	t.held = false
}

// end releases the seats for good. It may be called at any time and more than once.
func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leaveStalled(); t.over {
		return
	}
	if t.over = true; t.resuming == nil {
		t.flow.End(t.request)
	}
	t.request = nil // A watch keeps the turn for longer.
}
