package openapi

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// shared is a value that is built once, when it is first needed. Concurrent callers wait for the
// same build. If the build fails, these callers get the error, and the next caller starts another
// build.
type shared[T any] struct {
	// slots limits the number of concurrent builds. It is nil if builds need no limit.
	slots chan struct{}

	mu      sync.Mutex       // guards the fields below; leaf lock
	built   *T               // nil until a build has succeeded
	pending *pendingBuild[T] // nil if there is none
}

// pendingBuild is a build for which callers wait. shared.mu guards waiting and started.
type pendingBuild[T any] struct {
	stop    context.CancelFunc
	waiting int // number of callers
	// started reports that the build has acquired a slot. From then on it continues even if no
	// caller waits, so that a later caller can use the result.
	started bool

	done  chan struct{} // closed when value and err are set
	value T
	err   error
}

// get returns the value. If it does not exist, get waits for a build, which calls work. It returns
// an error if ctx ends first or too many requests wait. The context of work belongs to no request.
// It is canceled if no caller waits any longer before the build has started.
func (s *shared[T]) get(ctx context.Context, work func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	if s.built != nil {
		defer s.mu.Unlock()
		return *s.built, nil
	}
	build := s.pending
	if build == nil {
		buildCtx, stop := context.WithCancel(request.Detach(ctx))
		build = &pendingBuild[T]{stop: stop, done: make(chan struct{})}
		s.pending = build
		go s.run(buildCtx, build, work)
	}
	build.waiting++
	s.mu.Unlock()
	defer s.stopWaiting(build)
	err := request.Wait(ctx, status.ManyWait(), func(ctx context.Context) error {
		select {
		case <-build.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		var zero T
		return zero, err
	}
	return build.value, build.err
}

// stopWaiting records that one caller no longer waits for a build. If it was the last one and the
// build has not started, stopWaiting cancels the build.
func (s *shared[T]) stopWaiting(build *pendingBuild[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	build.waiting--
	if build.waiting > 0 || build.started {
		return
	}
	build.stop()
	if s.pending == build {
		s.pending = nil
	}
}

// run acquires a slot and builds the value.
func (s *shared[T]) run(ctx context.Context, build *pendingBuild[T], work func(context.Context) (T, error)) {
	defer build.stop()
	if s.slots != nil {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
			runtime.Gosched() // lets short requests run between consecutive builds
		case <-ctx.Done():
		}
		if !s.markStarted(build) {
			return
		}
	}
	value, err := runProtected(ctx, work)
	build.value = value
	build.err = err
	s.mu.Lock()
	if err == nil {
		s.built = &value // not &build.value, which would retain the build and its context
	}
	if s.pending == build {
		s.pending = nil
	}
	s.mu.Unlock()
	close(build.done)
}

// markStarted records that the build has started. It returns false, and records nothing, if no
// caller waits any longer.
func (s *shared[T]) markStarted(build *pendingBuild[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	build.started = build.waiting > 0
	return build.started
}

// runProtected runs work and converts a panic into an error, because no request handler would
// recover it.
func runProtected[T any](ctx context.Context, work func(context.Context) (T, error)) (_ T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return work(ctx)
}
