package serving

import (
	"net/http"
	"sync"
	"time"
)

// moment is how long a write lasts until the client is said to keep the handler
// waiting.
const moment = 20 * time.Millisecond

// Pausing lets a handler give away what others wait for while its client takes nothing
// of the answer. pause is called in the middle of a write that lasts; when it returns
// false, the client is cut. resume is called before such a write returns; its error
// becomes the write's. A handler may end without it.
func Pausing(w http.ResponseWriter, pause func() bool, resume func() error) {
	if x := exchangeOf(w); x != nil && x.deadlines != nil { // else a writer without a client
		x.pausing = &pausing{pause, resume}
		x.writing.pause = x.pausing.orElse(x.cut)
	}
}

// pausing is what a handler said to Pausing.
type pausing struct {
	pause  func() bool
	resume func() error
}

// orElse is what a guard does when a write lasts, nil for nothing.
func (p *pausing) orElse(cut func()) func() {
	if p == nil {
		return nil
	}
	return func() {
		if !p.pause() {
			cut()
		}
	}
}

// exchangeOf finds what bounds a writer, nil where there is none.
func exchangeOf(w http.ResponseWriter) *exchange {
	for {
		if x, ok := w.(*exchange); ok {
			return x
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = u.Unwrap()
	}
}

// guard cuts operations, one after the other, that take too long. Its timer runs
// during an operation only, so that idle connections cost nothing.
type guard struct {
	// overdue is called when an operation has taken as long as it may; first is true for the
	// first time of an operation. It returns how long the operation may go on, 0 when it was cut.
	overdue func(first bool) time.Duration
	// pause, if set, is called once when an operation takes longer than a moment.
	pause func()

	mu     sync.Mutex // held while overdue and pause run, so that nothing is cut after close
	timer  *time.Timer
	on     bool
	paused bool
	late   bool // overdue was called
	closed bool
	due    time.Time
}

// begin begins an operation that may take as long as limit; 0 is without end.
func (g *guard) begin(limit time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || limit <= 0 && g.pause == nil {
		return
	}
	g.on, g.paused, g.late, g.due = true, false, false, time.Time{}
	if limit > 0 {
		g.due = time.Now().Add(limit)
	}
	if g.pause != nil && (limit <= 0 || limit > moment) {
		limit = moment
	}
	if g.timer == nil {
		g.timer = time.AfterFunc(limit, g.fire)
	} else {
		g.timer.Reset(limit)
	}
}

// end tells whether the operation was long enough to pause.
func (g *guard) end() (paused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on = false
	if g.timer != nil {
		g.timer.Stop()
	}
	return g.paused
}

// close ends the guard; nothing is cut from now on.
func (g *guard) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.on = true, false
	if g.timer != nil {
		g.timer.Stop()
	}
}

func (g *guard) fire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The timer may have fired for an operation that has just ended.
	bounded, left := !g.due.IsZero(), time.Until(g.due)
	switch {
	case !g.on:
	case bounded && left <= 0:
		first := !g.late
		g.late = true
		if more := g.overdue(first); more > 0 {
			g.due = time.Now().Add(more)
			g.timer.Reset(more)
		}
	case g.pause != nil && !g.paused:
		g.paused = true
		if bounded {
			g.timer.Reset(left)
		}
		g.pause()
	}
}
