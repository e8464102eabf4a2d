package server

import (
	"context"
	"sync"

	"binnacle/services/apiserver/internal/flowcontrol"
	"binnacle/services/apiserver/internal/request"
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
	user    *request.User

	mu      sync.Mutex // pause comes at any time
	request *flowcontrol.Request
	over    bool
	away    bool
	held    bool // a place among the stalled
}

// pause gives the seats back; false when too many have done so.
func (t *turn) pause() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.away {
		return true
	}
	var ok bool
	if t.held, ok = t.stalled.enter(t.user, 1); !ok {
		return false
	}
	t.away = true
	t.flow.Pause(t.request)
	return true
}

// resume waits for seats again. Its error is the end of the request.
func (t *turn) resume() error {
	if !t.back() {
		return nil
	}
	return t.flow.Resume(t.ctx, t.request)
}

func (t *turn) back() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.away {
		return false
	}
	if t.away = false; t.held {
		t.stalled.leave(t.user, 1)
	}
	return true
}

func (t *turn) end() {
	t.back()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.flow.End(t.request)
}
