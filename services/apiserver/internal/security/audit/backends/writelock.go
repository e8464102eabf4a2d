package backends

import (
	"context"
	"sync"
)

// writeLock serializes writes. If sem is set, waits for it are limited by a context, because a write to a pipe
// may block for long.
type writeLock struct {
	mu  sync.Mutex
	sem chan struct{} // used instead of mu if waits are limited; capacity 1
}

// acquire waits for the lock. If waits are limited, it fails when ctx ends.
func (l *writeLock) acquire(ctx context.Context) error {
	if l.sem == nil {
		l.mu.Lock()
		return nil
	}
	select {
	case l.sem <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errNotRead
	}
}

// release releases the lock.
func (l *writeLock) release() {
	if l.sem == nil {
		l.mu.Unlock()
		return
	}
	<-l.sem
}
