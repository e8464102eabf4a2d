package handlers

import (
	"context"
	"sync"
	"time"
)

// lifetime is the context of a watch. It ends with its timeout, its request, the server, or the
// definition of its kind. It replaces a chain of four contexts, whose memory would count for many
// watches.
type lifetime struct {
	context.Context // of the request
	until           time.Time
	timer           *time.Timer
	left            func() bool    // detaches it from the request
	stopped         [2]func() bool // detach it from the server and from its kind; nil if not attached

	mu    sync.Mutex
	err   error
	done  chan struct{} // nil until the first call of Done
	ended func()        // called once at the end; may be nil
}

// newLifetime starts a lifetime with the given timeout. server and kind may be nil. The caller must
// call release.
func newLifetime(request, server, kind context.Context, lasts time.Duration) *lifetime {
	l := &lifetime{Context: request, until: time.Now().Add(lasts)}
	if earlier, ok := request.Deadline(); ok && earlier.Before(l.until) {
		l.until = earlier
	}
	if lasts <= 0 {
		l.end(context.DeadlineExceeded)
	}
	l.timer = time.AfterFunc(lasts, func() { l.end(context.DeadlineExceeded) })
	l.left = context.AfterFunc(request, func() { l.end(request.Err()) })
	for i, above := range []context.Context{server, kind} {
		if above != nil {
			l.stopped[i] = context.AfterFunc(above, func() { l.end(context.Canceled) })
		}
	}
	return l
}

// release ends the lifetime without calling ended.
func (l *lifetime) release() {
	l.timer.Stop()
	l.left()
	for _, stop := range l.stopped {
		if stop != nil {
			stop()
		}
	}
	l.onEnd(nil)
	l.end(context.Canceled)
}

// onEnd sets the function that is called at the end, or calls it immediately if the lifetime has
// ended. Nil removes the function.
func (l *lifetime) onEnd(ended func()) {
	l.mu.Lock()
	l.ended = ended
	over := l.err != nil
	l.mu.Unlock()
	if over && ended != nil {
		ended()
	}
}

func (l *lifetime) end(err error) {
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
func (l *lifetime) Deadline() (time.Time, bool) { return l.until, true }

// Done implements context.Context.
func (l *lifetime) Done() <-chan struct{} {
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
func (l *lifetime) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
