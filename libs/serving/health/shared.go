package health

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Shared makes a check of something that costs: who asks while it runs waits for
// that run, and what came out counts for keep, a failure for a tenth of that.
// limit bounds a run, whoever asks; each asker waits no longer than its request
// lasts.
func Shared(limit, keep time.Duration, run func(context.Context) error) Check {
	s := &shared{limit: limit, keep: keep, run: run}
	return func(r *http.Request) error { return s.ask(r.Context()) }
}

type shared struct {
	limit, keep time.Duration
	run         func(context.Context) error

	mu    sync.Mutex // leaf
	now   *outcome   // of the run that is under way, or nil
	last  error
	until time.Time // last counts
}

// outcome of a run, once done is closed.
type outcome struct {
	done chan struct{}
	err  error
}

func (s *shared) ask(ctx context.Context) error {
	s.mu.Lock()
	if time.Now().Before(s.until) {
		defer s.mu.Unlock()
		return s.last
	}
	o := s.now
	if o == nil {
		o = &outcome{done: make(chan struct{})}
		s.now = o
		go s.work(o) // ends within the limit
	}
	s.mu.Unlock()
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *shared) work(o *outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), s.limit)
	defer cancel()
	o.err = s.run(ctx)
	keep := s.keep
	if o.err != nil {
		keep /= 10
	}
	s.mu.Lock()
	s.last, s.until, s.now = o.err, time.Now().Add(keep), nil
	s.mu.Unlock()
	close(o.done)
}
