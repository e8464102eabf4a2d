package serving

import (
	"bufio"
	"net"
	"net/http"
	"sync"

	"binnacle/libs/serving/h2"
)

// Apart is a writer of the same answer that outlives the handler: that of the engine is another
// request's as soon as the handler has returned. Nobody else writes from now on.
func Apart(w http.ResponseWriter) http.ResponseWriter {
	x := exchangeOf(w)
	if x == nil {
		return w
	}
	if x.apart == nil {
		x.apart = &apart{x: x}
	}
	return x.apart
}

// Last has an answer that was begun on a writer which is Apart outlast the handler: what that and
// all before it have on their stacks is not kept for as long as the answer lasts, and it takes no
// goroutine while nothing happens. more is called once the handler has returned, and need not
// wait; the answer ends when end is called, with what more panicked with, or nil. What those
// before the handler do at the end they leave to AtEnd. Last is false where that cannot be done,
// as with HTTP/1.1. It is called once, as the last thing.
func Last(w http.ResponseWriter, more func(end func(failure any))) bool {
	x := exchangeOf(w)
	if x == nil || x.apart == nil {
		return false
	}
	below, ok := x.ResponseWriter.(outlasting)
	if !ok {
		return false
	}
	x.lasts = true
	below.Last(func(end func(any)) {
		var once sync.Once
		over := func(failure any) { once.Do(func() { end(x.end(failure)) }) }
		defer func() {
			if failure := recover(); failure != nil {
				over(Failed(failure))
			}
		}()
		more(over)
	})
	return true
}

// forsake takes Last back: who was called before has panicked meanwhile.
func (x *exchange) forsake(failure any) {
	if !x.lasts {
		return
	}
	x.lasts = false
	x.ResponseWriter.(outlasting).Last(nil)
	x.end(failure)
}

// outlasting is what has to be below for that.
type outlasting interface {
	// Last has more called when the handler has returned, unless it is nil, and the answer ended
	// by end.
	Last(more func(end func(failure any)))
}

// AtEnd has f called when the request has been answered: at once, for who calls it as the handler
// returns, or when an answer ends that outlasts it; failure is what it failed with, nil for
// nothing.
func AtEnd(w http.ResponseWriter, f func(failure any)) {
	if x := exchangeOf(w); x != nil && x.lasts {
		x.ends = append(x.ends, f)
		return
	}
	f(nil)
}

// end calls what was left to AtEnd, one after the other, whatever becomes of each. It returns what
// failed first.
func (x *exchange) end(failure any) any {
	for len(x.ends) > 0 {
		f := x.ends[0]
		x.ends = x.ends[1:]
		func() {
			defer func() {
				if v := recover(); failure == nil {
					failure = Failed(v)
				}
			}()
			if failed, ok := failure.(*h2.Failure); ok {
				f(failed.Value)
				return
			}
			f(failure)
		}()
	}
	return failure
}

// Failed is what end is to be called with by who has recovered from v: the log tells where that
// was.
func Failed(v any) any { return h2.Failed(v) }

// Sender is a writer that can do what Send does.
type Sender interface {
	Send(p []byte) error
}

// Send sends data at once, as Write and Flush after it do, where it can without having them wait in
// a buffer of the answer. Writers around others pass it on by it.
func Send(w http.ResponseWriter, p []byte) error {
	if s, ok := w.(Sender); ok {
		return s.Send(p)
	}
	if _, err := w.Write(p); err != nil {
		return err
	}
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	return nil
}

// apart is the writer of Apart.
type apart struct {
	x     *exchange
	begun bool
}

// Header implements http.ResponseWriter.
func (a *apart) Header() http.Header { return a.x.Header() }

// WriteHeader implements http.ResponseWriter.
func (a *apart) WriteHeader(code int) {
	a.begun = a.begun || code >= http.StatusOK
	a.x.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *apart) Write(p []byte) (int, error) {
	a.begun = true
	return a.x.Write(p)
}

// Flush implements http.Flusher.
func (a *apart) Flush() {
	a.begun = true
	a.x.Flush()
}

// Send implements Sender.
func (a *apart) Send(p []byte) error {
	a.begun = true
	return a.x.Send(p)
}

// Hijack implements http.Hijacker.
func (a *apart) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.begun = true
	return a.x.Hijack()
}

// Unwrap serves http.ResponseController.
func (a *apart) Unwrap() http.ResponseWriter { return a.x }
