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
	away    bool
	// resuming tells that seats are waited for, which are given back when they come if it is over.
	resuming bool
	held     bool          // a place among the stalled
	paused   time.Time     // since when the client takes nothing; zero while it does
	waited   time.Duration // for the client
}

// pause gives the seats back of an answer that has begun; false when too many have done so.
func (t *turn) pause() bool {
	t.mu.Lock()
	t.paused = time.Now()
	t.mu.Unlock()
	return t.giveBack(true)
}

// giveBack is pause. Those that have begun go on after others that have not: more may be away.
func (t *turn) giveBack(begun bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.away || t.resuming {
		return true
	}
	var ok bool
	if t.held, ok = t.stalled.enterFor(t.user, 1, begun); !ok {
		return false
	}
	t.away = true
	t.flow.Pause(t.request)
	return true
}

// resume waits for seats again. Its error is the end of the request.
func (t *turn) resume() error {
	t.mu.Lock()
	if !t.paused.IsZero() {
		t.waited += time.Since(t.paused)
		t.paused = time.Time{}
	}
	ctx, cancel := t.extended()
	defer cancel()
	r := t.request
	back := t.back()
	if back {
		t.resuming = true
	}
	t.mu.Unlock()
	if !back {
		return nil
	}
	err := t.flow.Resume(ctx, r)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.resuming = false; t.over {
		t.flow.End(r)
	}
	return err
}

// extended is the context of the request. The time for which it has waited for its client is added to
// its deadline. The caller holds mu.
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

// back tells whether the request was away, and is no more. The caller holds mu.
func (t *turn) back() bool {
	if !t.away {
		return false
	}
	if t.away = false; t.held {
		t.stalled.leave(t.user, 1)
	}
	return true
}

// end may come at any time, and more than once.
func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.back(); t.over {
		return
	}
	if t.over = true; !t.resuming {
		t.flow.End(t.request)
	}
	t.request = nil // a watch lasts on
}
