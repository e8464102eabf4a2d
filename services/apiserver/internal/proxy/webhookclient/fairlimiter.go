package webhookclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrCrowded is wrapped by errors of requests that did not call a service because too many requests
// wait for it.
var ErrCrowded = errors.New("too many requests wait for its answer")

// FairLimiter bounds the number of concurrent calls and shares them fairly among callers, such as
// users or addresses. A caller may hold at most as many slots as are free: the first caller gets
// half of all slots, the second one a quarter, and so on. Slow calls of one caller therefore leave
// slots for others. Waiting callers are served in turn.
type FairLimiter struct {
	mu      sync.Mutex // a leaf
	free    int
	held    map[string]int             // by caller; no entry means 0
	waiting map[string][]chan struct{} // no queue is empty
	order   []string                   // keys of waiting in the order of service
}

// NewFairLimiter returns a limiter with limit slots.
func NewFairLimiter(limit int) *FairLimiter {
	return &FairLimiter{free: limit, held: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// Acquire waits for a slot and returns the function that releases it. It returns an ErrCrowded if
// ctx ends first.
func (s *FairLimiter) Acquire(ctx context.Context, caller string) (release func(), err error) {
	release = func() { s.release(caller) }
	s.mu.Lock()
	if len(s.waiting[caller]) == 0 && s.take(caller) {
		s.mu.Unlock()
		return release, nil
	}
	ready := make(chan struct{})
	if len(s.waiting[caller]) == 0 {
		s.order = append(s.order, caller)
	}
	s.waiting[caller] = append(s.waiting[caller], ready)
	s.mu.Unlock()
	select {
	case <-ready:
		return release, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting[caller], ready)
	if i < 0 {
		return release, nil // the slot was assigned at the same time
	}
	s.set(caller, slices.Delete(s.waiting[caller], i, i+1))
	return nil, fmt.Errorf("%w: %w", ErrCrowded, context.Cause(ctx))
}

// TryAcquire is Acquire without waiting. It returns false if there is no slot.
func (s *FairLimiter) TryAcquire(caller string) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting[caller]) > 0 || !s.take(caller) {
		return nil, false
	}
	return func() { s.release(caller) }, true
}

// take takes a slot if the caller may hold one more. s.mu must be held.
func (s *FairLimiter) take(caller string) bool {
	if s.held[caller] >= s.free {
		return false
	}
	s.free--
	s.held[caller]++
	return true
}

func (s *FairLimiter) release(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.held[caller]--; s.held[caller] == 0 {
		delete(s.held, caller)
	}
	for skipped := 0; skipped < len(s.order); {
		next := s.order[0]
		copy(s.order, s.order[1:])
		s.order[len(s.order)-1] = next
		if !s.take(next) {
			skipped++
			continue
		}
		skipped = 0
		close(s.waiting[next][0])
		s.set(next, s.waiting[next][1:])
	}
}

// set replaces the queue of a caller in order. s.mu must be held.
func (s *FairLimiter) set(caller string, queue []chan struct{}) {
	if len(queue) > 0 {
		s.waiting[caller] = queue
		return
	}
	delete(s.waiting, caller)
	i := slices.Index(s.order, caller)
	s.order = slices.Delete(s.order, i, i+1)
}
