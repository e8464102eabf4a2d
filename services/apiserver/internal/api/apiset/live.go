package apiset

import (
	"context"
	"sync"
	"sync/atomic"
)

// Live holds the current set. It is safe for concurrent use.
type Live struct {
	current atomic.Pointer[Set]
	mu      sync.Mutex    // leaf lock
	swapped chan struct{} // closed and replaced by each Swap
}

// NewLive returns a Live with an initial set.
func NewLive(s *Set) *Live {
	l := &Live{swapped: make(chan struct{})}
	l.current.Store(s)
	return l
}

// Current returns the current set.
func (l *Live) Current() *Set { return l.current.Load() }

// Swap replaces the current set. Requests in progress keep the set that they started with.
func (l *Live) Swap(s *Set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current.Store(s)
	close(l.swapped)
	l.swapped = make(chan struct{})
}

// Wait waits until the current set reflects the definitions at a revision of the store, and returns
// the set. If ctx ends first, it returns the error of ctx.
func (l *Live) Wait(ctx context.Context, revision int64) (*Set, error) {
	for {
		l.mu.Lock()
		s, swapped := l.Current(), l.swapped
		l.mu.Unlock()
		if s.revision >= revision {
			return s, nil
		}
		select {
		case <-swapped:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
