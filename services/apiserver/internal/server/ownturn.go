package server

import (
	"context"
	"net/http"
	"sync"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// WithTurn is a context for work that is done for several requests, none of whose turns it can have as
// they may end before it. What turns out to be large in it has a turn until end; those of nobody's address
// go one after the other, like those of each address.
func WithTurn(ctx context.Context, turns serving.LargeRequests) (own context.Context, end func()) {
	own = requestinfo.Carry(ctx, requestinfo.From(ctx))
	t := &ownTurn{ctx: own, turns: turns}
	request.SetWeigh(own, t.weigh)
	request.SetAside(own, t.aside)
	return own, t.leave
}

// ownTurn belongs to one goroutine, but for the lock.
type ownTurn struct {
	ctx   context.Context
	turns serving.LargeRequests

	mu   sync.Mutex
	due  bool // it is to have one, unless it waits for others
	away int  // how many are waited for
	has  bool
}

func (t *ownTurn) weigh(size int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = t.due || size >= largeBody
	return t.begin()
}

// begin waits for a turn that is due. The caller holds mu.
func (t *ownTurn) begin() bool {
	if !t.due || t.has || t.away > 0 {
		return true
	}
	t.has = t.turns.Enter((&http.Request{}).WithContext(t.ctx)) == nil
	return t.has
}

func (t *ownTurn) aside() (back func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away++
	t.give()
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.away--
		t.begin() // or goes on without, as what has been done stays done
	}
}

func (t *ownTurn) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = false
	t.give()
}

// give gives the turn back. The caller holds mu.
func (t *ownTurn) give() {
	if t.has {
		t.turns.Leave()
	}
	t.has = false
}
