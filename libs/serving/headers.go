package serving

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// headersWait is how long headers wait for their turn. Then they are read without: something
// else takes longer than it may.
const headersWait = 10 * time.Second

// headerTurn is the turn of a connection whose client has sent a frame of large headers: it
// lasts until more is read, when the frame has been dealt with. Nobody knows yet whose
// request it will be, so that addresses take turns.
type headerTurn struct {
	turns *turns // nil is without end

	mu    sync.Mutex // before that of turns
	has   bool
	ended bool
}

// enter waits for the turn, until ctx ends.
func (t *headerTurn) enter(ctx context.Context, from netip.Addr) {
	if t.turns == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, headersWait)
	defer cancel()
	if t.turns.enter(ctx, from) != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.has = !t.ended; t.ended {
		t.turns.leave()
	}
}

// leave ends the turn, if there is one.
func (t *headerTurn) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.has {
		t.has = false
		t.turns.leave()
	}
}

// end has the connection take no more turns: who reads from it may do so no more, without
// saying so.
func (t *headerTurn) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.leave()
}
