package exchange

import (
	"bufio"
	"net"
	"net/http"
	"sync"

	"binnacle/libs/serving/h2"
)

// DetachableWriter returns a writer of the same response that may be used after the handler has
// returned. The engine reuses its own writer for another request then. The caller must not use
// other writers of the response any more.
func DetachableWriter(w http.ResponseWriter) http.ResponseWriter {
	exchange := exchangeOf(w)
	if exchange == nil {
		return w
	}
	if exchange.detached == nil {
		exchange.detached = &detachedWriter{x: exchange}
	}
	return exchange.detached
}

// Detach lets a response outlive its handler, so that an idle response needs no goroutine. The
// response must have started on a writer returned by DetachableWriter. After the handler has
// returned, continuation is called once; it need not block. The response ends when end is called,
// from any goroutine. failure is nil, or the result of Failed if the continuation panicked. Filters
// must use AtEnd for the work at the end of the response. Detach returns false if the connection
// does not support it, as with HTTP/1.1. It must be called once, as the last action of the handler.
func Detach(w http.ResponseWriter, continuation func(end func(failure any))) bool {
	exchange := exchangeOf(w)
	if exchange == nil || exchange.detached == nil {
		return false
	}
	below, ok := exchange.ResponseWriter.(detacher)
	if !ok {
		return false
	}
	exchange.isDetached = true
	below.Detach(func(end func(any)) {
		var once sync.Once
		endOnce := func(failure any) { once.Do(func() { end(exchange.runEndFuncs(failure)) }) }
		defer func() {
			if failure := recover(); failure != nil {
				endOnce(Failed(failure))
			}
		}()
		continuation(endOnce)
	})
	return true
}

// CancelDetach cancels Detach after a panic of a filter. It returns the writer of DetachableWriter
// and whether the response has started on it, or nil if that was not called.
func CancelDetach(w http.ResponseWriter, failure any) (detached http.ResponseWriter, started bool) {
	exchange := exchangeOf(w)
	if exchange == nil || exchange.detached == nil {
		return nil, false
	}
	exchange.cancelDetach(failure)
	return exchange.detached, exchange.detached.started
}

// cancelDetach cancels Detach, if it was called, and ends the response with a failure.
func (x *Exchange) cancelDetach(failure any) {
	if !x.isDetached {
		return
	}
	x.isDetached = false
	x.ResponseWriter.(detacher).Detach(nil)
	x.runEndFuncs(failure)
}

// detacher is implemented by writers of responses that can outlive their handler.
type detacher interface {
	// Detach schedules more for the return of the handler. Nil cancels it. The response ends when
	// end is called.
	Detach(more func(end func(failure any)))
}

// AtEnd calls f when the response has ended: at once, or, if Detach was called, when the detached
// response ends. failure is the panic value of the response, or nil. Filters call it when their
// handler returns.
func AtEnd(w http.ResponseWriter, f func(failure any)) {
	if x := exchangeOf(w); x != nil && x.isDetached {
		x.endFuncs = append(x.endFuncs, f)
		return
	}
	f(nil)
}

// runEndFuncs calls the functions registered with AtEnd in order. A panic of one does not stop the
// others. It returns the first failure.
func (x *Exchange) runEndFuncs(failure any) any {
	for len(x.endFuncs) > 0 {
		f := x.endFuncs[0]
		x.endFuncs = x.endFuncs[1:]
		panicked := callEndFunc(f, failure)
		if failure == nil {
			failure = panicked
		}
	}
	return failure
}

// callEndFunc calls f with the panic value of failure. If f panics, it returns that panic, wrapped
// by Failed.
func callEndFunc(f func(failure any), failure any) (panicked any) {
	defer func() { panicked = Failed(recover()) }()
	if failed, ok := failure.(*h2.Failure); ok {
		f(failed.Value)
		return nil
	}
	f(failure)
	return nil
}

// Failed wraps the recovered panic value v with its stack, for the parameter of end.
func Failed(v any) any { return h2.Failed(v) }

// Sender is implemented by response writers that support Send.
type Sender interface {
	Send(p []byte) error
}

// Send writes p and flushes it, if possible without a copy to the response buffer. Writers that
// wrap others should implement Sender.
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

// detachedWriter is the writer that DetachableWriter returns.
type detachedWriter struct {
	x       *Exchange
	started bool
}

// Header implements http.ResponseWriter.
func (w *detachedWriter) Header() http.Header { return w.x.Header() }

// WriteHeader implements http.ResponseWriter.
func (w *detachedWriter) WriteHeader(code int) {
	w.started = w.started || code >= http.StatusOK
	w.x.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *detachedWriter) Write(p []byte) (int, error) {
	w.started = true
	return w.x.Write(p)
}

// Flush implements http.Flusher.
func (w *detachedWriter) Flush() {
	w.started = true
	w.x.Flush()
}

// Send implements Sender.
func (w *detachedWriter) Send(p []byte) error {
	w.started = true
	return w.x.Send(p)
}

// Hijack implements http.Hijacker.
func (w *detachedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.started = true
	return w.x.Hijack()
}

// Unwrap is used by http.ResponseController.
func (w *detachedWriter) Unwrap() http.ResponseWriter { return w.x }
