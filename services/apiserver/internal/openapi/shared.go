package openapi

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// shared is made when it is first asked for, once for all who wait for it, and kept. A failure is
// told to them and not kept.
type shared[T any] struct {
	// turns bound how many are made at once, as nobody has seats for it; nil for what is only
	// waiting for others that have turns.
	turns chan struct{}

	mu     sync.Mutex // guards all below; nothing is locked while it is held
	made   *T
	making *making[T]
}

// making is what some wait for.
type making[T any] struct {
	stop    context.CancelFunc
	waiting int
	// begun work goes on without anybody who waits: who comes again finds it.
	begun bool

	done  chan struct{}
	value T // with err, when done
	err   error
}

// get returns what work makes, or the end of ctx, or that too many wait. The context of work is of no
// request, and ends when nobody waits any more.
func (s *shared[T]) get(ctx context.Context, work func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	if s.made != nil {
		defer s.mu.Unlock()
		return *s.made, nil
	}
	m := s.making
	if m == nil {
		within, stop := context.WithCancel(request.Apart(ctx))
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

// leave is for who waits no more. What nobody waits for is given up, unless it has begun.
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
			runtime.Gosched() // many may be made one after the other; short requests go before the next
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
		s.made = &value // of its own: m has the request that was first
	}
	if s.making == m {
		s.making = nil
	}
	s.mu.Unlock()
	close(m.done)
}

// begin is false when nobody waits any more.
func (s *shared[T]) begin(m *making[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.begun = m.waiting > 0
	return m.begun
}

// safely is work, whose panic is an error: no request is there that it could end.
func safely[T any](ctx context.Context, work func(context.Context) (T, error)) (_ T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return work(ctx)
}
