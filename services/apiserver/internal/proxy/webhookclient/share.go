package webhookclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrCrowded tells that too many requests wait for a service: it was not asked.
var ErrCrowded = errors.New("too many requests wait for its answer")

// Share lets so many questions be under way at a time. Of each asker, as a user or an address, there are
// as many as are free, at most: one has half of them, a second one a quarter, so that there is room
// for others however slow the answers to one are. Who finds none waits, and askers take turns.
type Share struct {
	mu      sync.Mutex // a leaf
	free    int
	held    map[string]int             // by the asker; none is 0
	waiting map[string][]chan struct{} // none is empty
	order   []string                   // the keys of waiting, the next one first
}

// NewShare makes a share of so many.
func NewShare(most int) *Share {
	return &Share{free: most, held: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// Enter waits until an asker may ask, and returns what ends that. Its error is an ErrCrowded
// when ctx ends before.
func (s *Share) Enter(ctx context.Context, asker string) (leave func(), err error) {
	leave = func() { s.leave(asker) }
	s.mu.Lock()
	if len(s.waiting[asker]) == 0 && s.take(asker) {
		s.mu.Unlock()
		return leave, nil
	}
	turn := make(chan struct{})
	if len(s.waiting[asker]) == 0 {
		s.order = append(s.order, asker)
	}
	s.waiting[asker] = append(s.waiting[asker], turn)
	s.mu.Unlock()
	select {
	case <-turn:
		return leave, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting[asker], turn)
	if i < 0 {
		return leave, nil // it has just come
	}
	s.set(asker, slices.Delete(s.waiting[asker], i, i+1))
	return nil, fmt.Errorf("%w: %w", ErrCrowded, context.Cause(ctx))
}

// EnterNow is Enter for an asker who does not wait; false when there is no room for him.
func (s *Share) EnterNow(asker string) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting[asker]) > 0 || !s.take(asker) {
		return nil, false
	}
	return func() { s.leave(asker) }, true
}

// take takes one for an asker who may have more. The caller holds mu.
func (s *Share) take(asker string) bool {
	if s.held[asker] >= s.free {
		return false
	}
	s.free--
	s.held[asker]++
	return true
}

func (s *Share) leave(asker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.held[asker]--; s.held[asker] == 0 {
		delete(s.held, asker)
	}
	for refused := 0; refused < len(s.order); {
		next := s.order[0]
		copy(s.order, s.order[1:])
		s.order[len(s.order)-1] = next
		if !s.take(next) {
			refused++
			continue
		}
		refused = 0
		close(s.waiting[next][0])
		s.set(next, s.waiting[next][1:])
	}
}

// set replaces the queue of an asker who is in the order.
func (s *Share) set(asker string, queue []chan struct{}) {
	if len(queue) > 0 {
		s.waiting[asker] = queue
		return
	}
	delete(s.waiting, asker)
	i := slices.Index(s.order, asker)
	s.order = slices.Delete(s.order, i, i+1)
}
