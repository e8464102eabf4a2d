package responsewriters

import "context"

// Acquire implements Limiter.
func (s *slowLimit) Acquire(context.Context) error {
	return s.SlowLimiter.Acquire(s.request, s.started != nil && *s.started)
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
func (a *Responses) ScanLimiter(ctx context.Context) *ScanLimiter {
	return &ScanLimiter{limiter: a.Limiter, ctx: ctx}
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
