package server

import (
	"context"
	"net/http"
	"sync"

	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// WithPermit returns a context for work on behalf of several requests. The work cannot use the permit of
// one of them, because any of them may end before it. Large work in the context acquires a permit of
// its own, which end releases. Callers of WithPermit share the limiter's queue for requests without an
// address.
func WithPermit(ctx context.Context, limiter serving.LargeRequests) (detached context.Context, end func()) {
	detached = requestinfo.Carry(ctx, requestinfo.From(ctx))
	t := &detachedWork{ctx: detached, limiter: limiter}
	request.SetWeigh(detached, t.admit)
	request.SetAside(detached, t.suspend)
	return detached, t.end
}

// detachedWork holds the permit of work that belongs to no single request.
type detachedWork struct {
	ctx     context.Context
	limiter serving.LargeRequests

	mu          sync.Mutex
	wantsPermit bool // acquires a permit unless suspended
	suspensions int  // number of waits in progress
	hasPermit   bool
}

func (t *detachedWork) admit(size int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wantsPermit = t.wantsPermit || size >= largeBody
	return t.acquire()
}

// acquire waits for a permit if the work wants one. The caller holds mu.
func (t *detachedWork) acquire() bool {
	if !t.wantsPermit || t.hasPermit || t.suspensions > 0 {
		return true
	}
	t.hasPermit = t.limiter.Enter((&http.Request{}).WithContext(t.ctx)) == nil
	return t.hasPermit
}

func (t *detachedWork) suspend() (back func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.suspensions++
	t.release()
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.suspensions--
		t.acquire() // on failure the work continues without a permit, because it cannot be undone
	}
}

func (t *detachedWork) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wantsPermit = false
	t.release()
}

// release releases the permit, if any. The caller holds mu.
func (t *detachedWork) release() {
	if t.hasPermit {
		t.limiter.Leave()
	}
	t.hasPermit = false
}
