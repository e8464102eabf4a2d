package responsewriters

import (
	"context"
	"net/http"
)

// Limiter limits the number of long responses that are encoded at a time. A response holds the
// limiter for each chunk of 128 KiB. Short responses are not limited, so that they do not wait
// behind long ones. The limiter is not held while a chunk is written or the store is read. Nil
// disables the limit.
type Limiter interface {
	// Acquire acquires the limiter, which Release releases. It fails when ctx ends.
	Acquire(ctx context.Context) error
	Release()
}

// SlowLimiter limits the number of requests that encode slow forms, fairly between client
// addresses. Human-readable forms acquire it for some objects at a time, because each object takes
// longer than a chunk of a list in other forms. Nil disables the limit.
type SlowLimiter interface {
	// Acquire acquires the limiter, which Release releases. It fails when the request ends. It
	// fails immediately if too many requests wait and started, which means that a part of the
	// response has been sent, is false.
	Acquire(r *http.Request, started bool) error
	Release()
}

// slowLimit implements Limiter for one request with SlowLimiter.
type slowLimit struct {
	SlowLimiter
	request *http.Request
	started *bool // whether a part of the response has been sent; may be nil
}

// Acquire implements Limiter.
func (s *slowLimit) Acquire(context.Context) error {
	hasStarted := s.started != nil && *s.started
	return s.SlowLimiter.Acquire(s.request, hasStarted)
}

// ScanLimiter limits work that reads many objects before it writes any. The work before the first
// Pause is not limited. Its methods may be called from one goroutine at a time. A nil ScanLimiter
// has no limit.
type ScanLimiter struct {
	limiter  Limiter
	ctx      context.Context
	acquired bool // holds the limiter
	err      error
}

// Pause releases the limiter and acquires it again. It returns false if it cannot be acquired in
// time; Err then returns the reason.
func (s *ScanLimiter) Pause() bool {
	s.Release()
	if s == nil || s.limiter == nil {
		return true
	}
	s.err = asTimeout(s.limiter.Acquire(s.ctx))
	s.acquired = s.err == nil
	return s.acquired
}

// Err returns the error of the last Pause, or nil.
func (s *ScanLimiter) Err() error {
	if s == nil {
		return nil
	}
	return s.err
}

// Release releases the limiter.
func (s *ScanLimiter) Release() {
	if s != nil && s.acquired {
		s.acquired = false
		s.limiter.Release()
	}
}
