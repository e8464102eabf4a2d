package responsewriters

import (
	"context"
	"net/http"
)

// Limiter limits the number of long responses that are encoded at a time. A response holds the
// limiter for each piece of 128 KiB. Short responses are not limited, so that they do not wait
// behind long ones. The limiter is not held while a piece is written or the store is read. Nil
// disables the limit.
type Limiter interface {
	// Acquire acquires the limiter, which Release releases. It fails when ctx ends.
	Acquire(ctx context.Context) error
	Release()
}

// SlowLimiter limits the number of requests that encode slow forms, fairly between client
// addresses. Human-readable forms acquire it for some objects at a time, because each object takes
// longer than a piece of a list in other forms. Nil disables the limit.
type SlowLimiter interface {
	// Acquire acquires the limiter, which Release releases. It fails when the request ends. It fails
	// immediately if too many requests wait and the response has not begun.
	Acquire(r *http.Request, begun bool) error
	Release()
}

// slowLimit implements Limiter for one request with SlowLimiter.
type slowLimit struct {
	SlowLimiter
	request *http.Request
	begun   *bool // whether the response has begun; may be nil
}

// Acquire implements Limiter.
func (s *slowLimit) Acquire(context.Context) error {
	return s.SlowLimiter.Acquire(s.request, s.begun != nil && *s.begun)
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

// ScanLimiter returns the ScanLimiter of a request. Its waits end with ctx. The caller calls End at
// the end.
func (a *Writers) ScanLimiter(ctx context.Context) *ScanLimiter {
	return &ScanLimiter{limiter: a.Limiter, ctx: ctx}
}

// Pause releases the limiter and acquires it again. It returns false if it cannot be acquired in
// time; Err then returns the reason.
func (s *ScanLimiter) Pause() bool {
	s.End()
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

// End releases the limiter.
func (s *ScanLimiter) End() {
	if s != nil && s.acquired {
		s.acquired = false
		s.limiter.Release()
	}
}
