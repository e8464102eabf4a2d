package health

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Shared returns a check that runs an expensive function. Callers share a run in progress. A
// successful result is reused for keep, a failure for a tenth of that. limit bounds a run. A caller
// waits at most until its request ends.
func Shared(limit, keep time.Duration, run func(context.Context) error) Check {
	s := &shared{timeout: limit, keepFor: keep, run: run}
	return func(r *http.Request) error { return s.resultOrRun(r.Context()) }
}

// shared runs a check once for all callers that wait for it, and keeps its result for a while.
type shared struct {
	timeout, keepFor time.Duration
	run              func(context.Context) error

	mu           sync.Mutex // leaf lock
	current      *runResult // the current run, or nil
	lastErr      error      // the result of the last run
	lastErrUntil time.Time  // when last expires
}

// runResult is the result of a run, valid once done is closed.
type runResult struct {
	done chan struct{}
	err  error
}

// resultOrRun returns the last result while it is valid. Otherwise it runs the check or waits for
// the current run.
func (s *shared) resultOrRun(ctx context.Context) error {
	s.mu.Lock()
	if time.Now().Before(s.lastErrUntil) {
		defer s.mu.Unlock()
		return s.lastErr
	}
	o := s.current
	if o == nil {
		o = &runResult{done: make(chan struct{})}
		s.current = o
		go s.runAndStore(o) // ends within limit
	}
	s.mu.Unlock()
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runAndStore runs the check and keeps the result.
func (s *shared) runAndStore(o *runResult) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	o.err = s.run(ctx)
	keep := s.keepFor
	if o.err != nil {
		keep /= 10
	}
	s.mu.Lock()
	s.lastErr, s.lastErrUntil, s.current = o.err, time.Now().Add(keep), nil
	s.mu.Unlock()
	close(o.done)
}
