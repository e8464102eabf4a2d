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
	s := &shared{limit: limit, keep: keep, run: run}
	return func(r *http.Request) error { return s.await(r.Context()) }
}

// shared runs a check once for all callers that wait for it, and keeps its result for a while.
type shared struct {
	limit, keep time.Duration
	run         func(context.Context) error

	mu      sync.Mutex // leaf lock
	running *outcome   // the current run, or nil
	last    error      // the result of the last run
	until   time.Time  // when last expires
}

// outcome is the result of a run, valid once done is closed.
type outcome struct {
	done chan struct{}
	err  error
}

// await returns the last result while it is valid. Otherwise it runs the check or waits for the
// current run.
func (s *shared) await(ctx context.Context) error {
	s.mu.Lock()
	if time.Now().Before(s.until) {
		defer s.mu.Unlock()
		return s.last
	}
	o := s.running
	if o == nil {
		o = &outcome{done: make(chan struct{})}
		s.running = o
		go s.execute(o) // ends within limit
	}
	s.mu.Unlock()
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// execute runs the check and keeps the result.
func (s *shared) execute(o *outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), s.limit)
	defer cancel()
	o.err = s.run(ctx)
	keep := s.keep
	if o.err != nil {
		keep /= 10
	}
	s.mu.Lock()
	s.last, s.until, s.running = o.err, time.Now().Add(keep), nil
	s.mu.Unlock()
	close(o.done)
}
