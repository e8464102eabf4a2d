package exchange

import (
	"net/http"
	"sync"
	"time"
)

// slowWriteAfter is the duration of a write after which the handler counts as waiting for its
// client.
const slowWriteAfter = 20 * time.Millisecond

// OnSlowWrite lets a handler release resources while its client does not read the response. suspend
// is called during a write that takes longer than 20 ms. If it returns false, the response is
// aborted. resume is called before such a write returns, and its error becomes the error of the
// write. If the handler ends before the write, resume may not be called.
func OnSlowWrite(w http.ResponseWriter, suspend func() bool, resume func() error) {
	if x := exchangeOf(w); x != nil && x.deadlines != nil { // otherwise no client is connected
		x.slowWrite = &slowWriteHooks{suspend, resume}
		x.writeTimer.suspend = x.slowWrite.suspendOrAbort(x.abort)
	}
}

// slowWriteHooks holds the functions passed to OnSlowWrite.
type slowWriteHooks struct {
	suspend func() bool
	resume  func() error
}

// suspendOrAbort returns a function that calls suspend, and abort if suspend returns false. It
// returns nil for nil hooks.
func (p *slowWriteHooks) suspendOrAbort(abort func()) func() {
	if p == nil {
		return nil
	}
	return func() {
		if !p.suspend() {
			abort()
		}
	}
}

// exchangeOf returns the exchange that w wraps, or nil.
func exchangeOf(w http.ResponseWriter) *Exchange {
	for {
		if x, ok := w.(*Exchange); ok {
			return x
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = u.Unwrap()
	}
}

// operationTimer limits the duration of operations that run one after the other, such as the reads
// of a body. The timer runs only during an operation, so an idle connection costs nothing.
type operationTimer struct {
	// checkLimit is called when the operation has reached its limit. first is true for the first
	// call of an operation. It returns how much longer the operation may take, or 0 if it was
	// aborted.
	checkLimit func(first bool) time.Duration
	// suspend, if set, is called once if an operation takes longer than slowWriteAfter.
	suspend func()

	mu           sync.Mutex // held while overdue and suspend run, so that nothing is aborted after close
	timer        *time.Timer
	active       bool
	suspended    bool
	limitChecked bool // overdue was called for this operation
	disabled     bool
	deadline     time.Time
}

// start starts an operation with a time limit; 0 means no limit.
func (g *operationTimer) start(limit time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.disabled || limit <= 0 && g.suspend == nil {
		return
	}
	g.active = true
	g.suspended = false
	g.limitChecked = false
	g.deadline = time.Time{}
	if limit > 0 {
		g.deadline = time.Now().Add(limit)
	}
	if g.suspend != nil && (limit <= 0 || limit > slowWriteAfter) {
		limit = slowWriteAfter
	}
	if g.timer == nil {
		g.timer = time.AfterFunc(limit, g.timerFired)
	} else {
		g.timer.Reset(limit)
	}
}

// stop ends the operation and reports whether suspend was called during it.
func (g *operationTimer) stop() (suspended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active = false
	if g.timer != nil {
		g.timer.Stop()
	}
	return g.suspended
}

// disable ends the current operation. Later operations have no limit.
func (g *operationTimer) disable() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.disabled = true
	g.active = false
	if g.timer != nil {
		g.timer.Stop()
	}
}

// timerFired is called by the timer. It calls suspend after slowWriteAfter, and checkLimit at the
// deadline of the operation.
func (g *operationTimer) timerFired() {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The timer may have fired for an operation that has just ended.
	bounded, remaining := !g.deadline.IsZero(), time.Until(g.deadline)
	switch {
	case !g.active:
	case bounded && remaining <= 0:
		first := !g.limitChecked
		g.limitChecked = true
		if more := g.checkLimit(first); more > 0 {
			g.deadline = time.Now().Add(more)
			g.timer.Reset(more)
		}
	case g.suspend != nil && !g.suspended:
		g.suspended = true
		if bounded {
			g.timer.Reset(remaining)
		}
		g.suspend()
	}
}
