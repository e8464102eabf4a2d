package audit

import (
	"context"
	"sync"
	"time"
)

// Limiter limits how much work on large objects runs concurrently.
type Limiter interface {
	// Acquire waits for a permit. It returns an error if ctx is canceled first.
	Acquire(ctx context.Context) error
	// Release returns a permit that Acquire granted.
	Release()
}

const (
	// largeObject is the size in bytes from which work on objects and events needs a permit.
	largeObject = 64 << 10
	// maxPermitWait is the maximum wait for a permit. Then the work runs without a permit, because
	// the event must be recorded.
	maxPermitWait = 10 * time.Second
)

// WithPermit calls work, which processes an object or event of size bytes. For a large one, it
// first waits for a permit of l, at most maxPermitWait. A nil Limiter means no limit.
func WithPermit(l Limiter, size int, work func()) {
	if l == nil || size < largeObject {
		work()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxPermitWait)
	defer cancel()
	if l.Acquire(ctx) == nil {
		defer l.Release()
	}
	work()
}

// objectBudget limits the bytes of objects that the open records hold together. A principal may
// hold at most as many bytes as remain free: alone half of the budget, the next principal a
// quarter, and so on. A client that does not read its responses therefore cannot use up the budget
// of other clients.
type objectBudget struct {
	mu   sync.Mutex // leaf lock
	free int64
	held map[string]int64 // bytes by principal; no value is zero
}

// tryAcquire acquires n bytes for a principal. It returns false if the principal would then hold
// more bytes than were free before.
func (b *objectBudget) tryAcquire(principal string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[principal]+n > b.free {
		return false
	}
	b.free -= n
	b.held[principal] += n
	return true
}

// release returns n bytes that a principal holds.
func (b *objectBudget) release(principal string, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.held[principal] -= n
	if b.held[principal] <= 0 {
		delete(b.held, principal)
	}
}
