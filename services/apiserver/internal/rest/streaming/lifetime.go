package streaming

import (
	"context"
	"sync"
	"time"
)

// Lifetime is the context of a watch. It ends with its timeout, its request, the server, or the
// definition of its kind. It replaces a chain of four contexts, whose memory would count for many
// watches.
type Lifetime struct {
	context.Context // of the request
	until           time.Time
	timer           *time.Timer
	detachRequest   func() bool    // the lifetime no longer ends with the request
	detach          [2]func() bool // detach the lifetime from the server and the kind; nil without them

	mu    sync.Mutex
	err   error
	done  chan struct{} // nil until the first call of Done
	ended func()        // called once at the end; may be nil
}

// NewLifetime starts a lifetime with the given timeout. server and kind may be nil. The caller must
// call release.
func NewLifetime(request, server, kind context.Context, lasts time.Duration) *Lifetime {
	lifetime := &Lifetime{Context: request, until: time.Now().Add(lasts)}
	if earlier, ok := request.Deadline(); ok && earlier.Before(lifetime.until) {
		lifetime.until = earlier
	}
	if lasts <= 0 {
		lifetime.finish(context.DeadlineExceeded)
	}
	lifetime.timer = time.AfterFunc(lasts, func() { lifetime.finish(context.DeadlineExceeded) })
	lifetime.detachRequest = context.AfterFunc(request, func() { lifetime.finish(request.Err()) })
	for i, parent := range []context.Context{server, kind} {
		if parent != nil {
			lifetime.detach[i] = context.AfterFunc(parent, func() { lifetime.finish(context.Canceled) })
		}
	}
	return lifetime
}

// Release ends the lifetime without calling ended.
func (l *Lifetime) Release() {
	l.timer.Stop()
	l.detachRequest()
	for _, stop := range l.detach {
		if stop != nil {
			stop()
		}
	}
	l.OnEnd(nil)
	l.finish(context.Canceled)
}

// OnEnd sets the function that is called at the end, or calls it immediately if the lifetime has
// ended. Nil removes the function.
func (l *Lifetime) OnEnd(ended func()) {
	l.mu.Lock()
	l.ended = ended
	over := l.err != nil
	l.mu.Unlock()
	if over && ended != nil {
		ended()
	}
}

// finish ends the lifetime with an error. Only the first call has an effect.
func (l *Lifetime) finish(err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = err
	if l.done != nil {
		close(l.done)
	}
	ended := l.ended
	l.mu.Unlock()
	if ended != nil {
		ended()
	}
}

// Deadline implements context.Context.
func (l *Lifetime) Deadline() (time.Time, bool) { return l.until, true }

// Done implements context.Context.
func (l *Lifetime) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// Err implements context.Context.
func (l *Lifetime) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
