package served

import (
	"context"
	"sync"
	"sync/atomic"
)

// Live is the newest set.
type Live struct {
	current atomic.Pointer[Set]

	mu      sync.Mutex // leaf
	swapped chan struct{}
}

// NewLive begins with a set.
func NewLive(s *Set) *Live {
	l := &Live{swapped: make(chan struct{})}
	l.current.Store(s)
	return l
}

// Current is the newest set.
func (l *Live) Current() *Set { return l.current.Load() }

// Swap makes s the newest set. Requests that have begun keep theirs.
func (l *Live) Swap(s *Set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current.Store(s)
	close(l.swapped)
	l.swapped = make(chan struct{})
}

// Wait until the newest set has the definitions of a revision of the store, and
// return it. The error is the context's.
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
