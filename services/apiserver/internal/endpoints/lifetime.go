package endpoints

import (
	"context"
	"sync"
	"time"
)

// lifetime is the context of a watch: it ends with its time, its request, the server, or what
// defines its kind. It does what four contexts made of each other would, of which each of many watches would keep its own.
type lifetime struct {
	context.Context // of the request
	until           time.Time
	timer           *time.Timer
	left            func() bool    // stops what ends it with the request,
	stopped         [2]func() bool // with the server and with its kind; nil where it does not

	mu    sync.Mutex
	err   error
	done  chan struct{} // nil until somebody asks
	ended func()        // is told once; nil for nobody
}

// newLifetime begins one that lasts so long. server and kind may be nil. release must be called in
// the end.
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

// release ends it without telling.
func (l *lifetime) release() {
	l.timer.Stop()
	l.left()
	for _, stop := range l.stopped {
		if stop != nil {
			stop()
		}
	}
	l.tell(nil)
	l.end(context.Canceled)
}

// tell has ended called when it ends, or at once if it has; nil takes that back.
func (l *lifetime) tell(ended func()) {
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
