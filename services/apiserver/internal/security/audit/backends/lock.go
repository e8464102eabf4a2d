package backends

import (
	"context"
	"sync"
)

// lock is held by who writes. Where a write may take as long as somebody does not read, it is
// waited for within bounds.
type lock struct {
	mu    sync.Mutex
	place chan struct{} // is taken instead of mu where there are bounds
}

// take waits for the lock, which give ends; with bounds it fails when ctx ends.
func (l *lock) take(ctx context.Context) error {
	if l.place == nil {
		l.mu.Lock()
		return nil
	}
	select {
	case l.place <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.place <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errNotTaken
	}
}

func (l *lock) give() {
	if l.place == nil {
		l.mu.Unlock()
		return
	}
	<-l.place
}
