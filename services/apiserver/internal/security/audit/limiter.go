package audit

import (
	"context"
	"sync"
	"time"
)

// Limiter limits concurrent work on large objects.
type Limiter interface {
	Acquire(ctx context.Context) error
	Release()
}

const (
	// largeObject is the size in bytes from which work on objects and events needs a permit.
	largeObject = 64 << 10
	// maxPermitWait is the maximum wait for a permit. After it the work runs without one, because
	// the event must be recorded.
	maxPermitWait = 10 * time.Second
)

// WithPermit calls work, which processes size bytes. If size is large, it first waits for a permit
// of l. A nil Limiter means no limit.
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

// objectBudget is the number of bytes of objects that records in progress may hold. A principal may
// hold as many as are free, so a client that does not read its responses cannot use up the budget
// of others.
type objectBudget struct {
	mu   sync.Mutex // leaf lock
	free int64
	held map[string]int64 // by principal
}

func newObjectBudget(size int64) *objectBudget {
	return &objectBudget{free: size, held: map[string]int64{}}
}

// tryAcquire acquires n bytes. A principal may hold at most what is free.
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

// release returns n bytes of a principal.
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
