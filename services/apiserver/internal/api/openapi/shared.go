package openapi

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// shared is a value that is built on first use, once for all callers that wait for it, and then
// kept. A failed build is returned to these callers and not kept.
type shared[T any] struct {
	// turns limits the number of concurrent builds, which hold no seats. It is nil for values that
	// only wait for other limited builds.
	turns chan struct{}

	mu     sync.Mutex // guards the fields below; leaf lock
	made   *T
	making *making[T]
}

// making is a build that callers wait for.
type making[T any] struct {
	stop    context.CancelFunc
	waiting int
	// begun states that the build has started. It then continues without callers, so that a later
	// caller finds its result.
	begun bool

	done  chan struct{}
	value T // valid with err once done is closed
	err   error
}

// get returns the result of work. It returns an error if ctx ends or if too many requests wait. The
// context of work belongs to no request, and ends when no caller waits any more.
func (s *shared[T]) get(ctx context.Context, work func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	if s.made != nil {
		defer s.mu.Unlock()
		return *s.made, nil
	}
	m := s.making
	if m == nil {
		within, stop := context.WithCancel(request.Detach(ctx))
		m = &making[T]{stop: stop, done: make(chan struct{})}
		s.making = m
		go s.run(within, m, work)
	}
	m.waiting++
	s.mu.Unlock()
	defer s.leave(m)
	err := request.Wait(ctx, status.ManyWait(), func(ctx context.Context) error {
		select {
		case <-m.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		var none T
		return none, err
	}
	return m.value, m.err
}

// leave ends the wait of one caller. A build that has not started is canceled when its last caller
// leaves.
func (s *shared[T]) leave(m *making[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.waiting--; m.waiting > 0 || m.begun {
		return
	}
	m.stop()
	if s.making == m {
		s.making = nil
	}
}

func (s *shared[T]) run(ctx context.Context, m *making[T], work func(context.Context) (T, error)) {
	defer m.stop()
	if s.turns != nil {
		select {
		case s.turns <- struct{}{}:
			defer func() { <-s.turns }()
			runtime.Gosched() // lets short requests run between consecutive builds
		case <-ctx.Done():
		}
		if !s.begin(m) {
			return
		}
	}
	value, err := safely(ctx, work)
	m.value, m.err = value, err
	s.mu.Lock()
	if err == nil {
		s.made = &value // a copy, because m references the first request
	}
	if s.making == m {
		s.making = nil
	}
	s.mu.Unlock()
	close(m.done)
}

// begin marks the build as started. It returns false if no caller waits any more.
func (s *shared[T]) begin(m *making[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.begun = m.waiting > 0
	return m.begun
}

// safely runs work and converts a panic into an error, because no request handler would recover it.
func safely[T any](ctx context.Context, work func(context.Context) (T, error)) (_ T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return work(ctx)
}
