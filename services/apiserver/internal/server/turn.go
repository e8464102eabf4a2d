package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/flowcontrol"
)

// maxStalled answers at a time have given their seats back because nobody takes them.
// Each holds a buffer, and what it shows.
const maxStalled = 1000

// turn is a request that was let in. It has its seats while the server works, and gives
// them back while its client takes nothing of the answer: who does not read holds
// nobody up.
type turn struct {
	flow    *flowcontrol.Controller
	stalled *slots
	ctx     context.Context
	user    client

	mu      sync.Mutex // pause comes at any time
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

// pause gives the seats back of an answer that has begun; false when too many have done so.
func (t *turn) pause() bool {
	t.mu.Lock()
	t.paused = time.Now()
	t.mu.Unlock()
	return t.giveBack(true)
}

// giveBack is pause. Those that have begun go on after others that have not: more may be away.
// Each call that returns true is followed by one of resume, unless the request ends.
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

// goAway gives the seats back; false when too many have done so. The caller holds mu.
func (t *turn) goAway(begun bool) bool {
	var ok bool
	if t.held, ok = t.stalled.enterFor(t.user, 1, begun); !ok {
		return false
	}
	t.away = true
	t.flow.Pause(t.request)
	return true
}

// resume ends one wait. After the last one it waits for the seats, which the request does not
// keep if another wait began meanwhile. Its error is the end of the request.
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

// end may come at any time, and more than once.
func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leaveStalled(); t.over {
		return
	}
	if t.over = true; t.resuming == nil {
		t.flow.End(t.request)
	}
	t.request = nil // a watch lasts on
}
