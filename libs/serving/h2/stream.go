package h2

import (
	"context"
	"errors"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// errResponseEnded is the error of writes after the end of a response.
var errResponseEnded = errors.New("the response has ended")

// window is a receive window of a stream or of the connection.
type window struct {
	available   int64 // bytes that the client may still send
	unannounced int64 // consumed bytes that no WINDOW_UPDATE has returned yet
	step        int64 // smallest increment of a WINDOW_UPDATE
}

// credit returns the increment for a WINDOW_UPDATE after n more bytes were consumed, or 0 if it is
// too small for a frame.
func (w *window) credit(n int64) int64 {
	w.unannounced += n
	if w.unannounced < w.step {
		return 0
	}
	n = w.unannounced
	w.unannounced = 0
	w.available += n
	return n
}

// closedStreams is a ring buffer of recently closed streams.
type closedStreams struct {
	next    int // index of the oldest entry, which add replaces
	streams [128]struct {
		id       uint32
		byServer bool
	}
}

// add adds a stream. byServer is whether the server reset it.
func (r *closedStreams) add(id uint32, byServer bool) {
	r.streams[r.next].id = id
	r.streams[r.next].byServer = byServer
	r.next = (r.next + 1) % len(r.streams)
}

// find reports whether a stream was closed recently, and whether the server reset it.
func (r *closedStreams) find(id uint32) (closed, byServer bool) {
	for _, s := range r.streams {
		if s.id == id {
			closed, byServer = true, byServer || s.byServer
		}
	}
	return closed, byServer
}

// markResetByClient records that the client has reset a stream after it was closed. Further frames
// on it are violations.
func (r *closedStreams) markResetByClient(id uint32) {
	for i := range r.streams {
		if r.streams[i].id == id {
			r.streams[i].byServer = false
		}
	}
}

// stream is a request and its response.
type stream struct {
	conn            *conn
	id              uint32
	request         *http.Request
	ctx             context.Context
	cancel          context.CancelFunc
	body            *body // nil if there is no body
	response        response
	handler         http.Handler
	responseStarted atomic.Bool

	// Used by the reader only.
	declaredLength, receivedLength int64 // bytes of the body; declared is -1 if unknown
	receivedTrailer                http.Header

	// Guarded by conn.mu.
	sendWindow                  int64 // for DATA to the client
	recvWindow                  window
	err                         error // why the stream was closed early
	responseEnded, requestEnded bool  // END_STREAM was queued or sent; END_STREAM was received
	handlerDone                 bool  // the handler has returned
	hasToken                    bool  // holds the write token
	dataInFlight                bool  // the write in progress contains data of the stream
	expiryReason                error // why the stream must be reset after that write; nil if it need not
	wake                        chan struct{}
	onClose                     []func()
	deadline                    deadline
	stall                       stall
	readTimer                   *time.Timer
}

// signal wakes wait. The caller holds mu.
func (s *stream) signal() {
	if s.wake == nil {
		return // no goroutine has waited yet
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// wait waits for a signal. Spurious wakeups are possible. The caller holds mu, which wait releases
// while it waits.
func (s *stream) wait() {
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
	}
	s.conn.mu.Unlock()
	<-s.wake
	s.conn.mu.Lock()
}

// setReadDeadline sets the time after which reads of the body fail; zero removes the deadline.
func (s *stream) setReadDeadline(t time.Time) {
	if s.body == nil {
		return
	}
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.readTimer != nil {
		s.readTimer.Stop()
		s.readTimer = nil
	}
	if t.IsZero() {
		return
	}
	if remaining := time.Until(t); remaining > 0 {
		s.readTimer = time.AfterFunc(remaining, func() { s.returnConsumed(s.body.closeWithError(os.ErrDeadlineExceeded)) })
		return
	}
	c.returnCredit(s, s.body.closeWithError(os.ErrDeadlineExceeded))
	c.flushAsync()
}

// startStream registers a stream. It starts the handler, or queues the stream if MaxStreams
// handlers run. The caller holds mu.
func (c *conn) startStream(s *stream) error {
	c.streams[s.id] = s
	s.sendWindow = c.initialSendWindow
	s.recvWindow = window{available: initialBodyWindow, step: initialBodyWindow / 4}
	s.stall.timeout = c.config.StallTimeout
	if c.config.ResponseTimeout > 0 {
		s.deadline.at = time.Now().Add(c.config.ResponseTimeout)
		s.checkDeadline()
	}
	if c.runningHandlers < c.config.MaxStreams {
		c.runningHandlers++
		go s.runHandler()
		return nil
	}
	if len(c.waitingForHandler) >= maxQueuedPerStream*c.config.MaxStreams {
		c.waitingForHandler = slices.DeleteFunc(c.waitingForHandler, func(s *stream) bool { return s.err != nil })
	}
	if len(c.waitingForHandler) >= maxQueuedPerStream*c.config.MaxStreams {
		return newConnError(http2.ErrCodeEnhanceYourCalm, "requests are reset faster than their handlers return")
	}
	c.waitingForHandler = append(c.waitingForHandler, s)
	return nil
}

// resetStream queues a RST_STREAM with the code, and closes the stream. Later writes of its handler
// fail with err. The caller holds mu.
func (c *conn) resetStream(id uint32, code http2.ErrCode, err error) {
	c.queue.append(appendReset(c.scratch[:0], id, code))
	if code != http2.ErrCodeNo { // otherwise the response is complete
		c.queuedResets++
	}
	if s := c.streams[id]; s != nil {
		c.closeStream(s, err)
	} else {
		c.recentlyClosed.add(id, true)
	}
}

// closeStream removes a stream from the connection. err is nil if both sides have sent everything.
// Otherwise the request is canceled, and writes fail with err. The caller holds mu.
func (c *conn) closeStream(s *stream, err error) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	c.recentlyClosed.add(s.id, err != nil && err != errResetByClient)
	if err != nil {
		s.err = err
		s.cancel()
		if s.body != nil {
			c.returnCredit(nil, s.body.closeWithError(err))
		}
		for _, f := range s.onClose {
			f()
		}
		s.onClose = nil
		s.signal()
	}
	if len(c.streams) == 0 {
		c.idleSince = c.now()
		c.scheduleClose()
	}
}

// addOnClose implements response.OnClose.
func (s *stream) addOnClose(f func()) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	endMayBeUnwritten := c.err == nil && s.err == nil && s.responseEnded && (c.queue.size > 0 || c.tokenTaken)
	switch {
	case c.streams[s.id] == s && !s.responseEnded:
		s.onClose = append(s.onClose, f)
	case endMayBeUnwritten:
		c.closeFuncs = append(c.closeFuncs, f)
	default:
		f()
	}
}

// returnCredit adds n bytes that were read or discarded to the receive windows, and queues the
// WINDOW_UPDATE frames that are large enough. s may be nil. The caller holds mu.
func (c *conn) returnCredit(s *stream, n int64) {
	if n == 0 {
		return
	}
	if n := c.recvWindow.credit(n); n > 0 {
		c.queue.append(appendWindowUpdate(c.scratch[:0], 0, n))
	}
	if s == nil || s.requestEnded || c.streams[s.id] != s {
		return
	}
	if n := s.recvWindow.credit(n); n > 0 {
		c.queue.append(appendWindowUpdate(c.scratch[:0], s.id, n))
	}
}

// runHandler calls the handler. Then it ends the response, or passes it to the continuation.
func (s *stream) runHandler() {
	returned := false
	defer func() {
		if !returned {
			s.failResponse(recover())
			s.cleanUp()
		}
	}()
	s.handler.ServeHTTP(&s.response, s.request)
	if more := s.response.continuation; more != nil {
		s.response.continuation = nil
		s.releaseRequest()
		more(s.endResponse)
	} else {
		s.endResponse(nil)
	}
	returned = true
}

// releaseRequest releases the memory that only the handler needs.
func (s *stream) releaseRequest() {
	s.response.releaseHeader()
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.handler = nil
	if s.requestEnded { // otherwise trailers may follow
		s.request = nil
	}
}

// endResponse ends the response, or resets the stream if failure is not nil.
func (s *stream) endResponse(failure any) {
	defer func() {
		if failure := recover(); failure != nil {
			s.failResponse(failure)
		}
		s.cleanUp()
	}()
	if failure != nil {
		s.failResponse(failure)
		return
	}
	s.response.finish()
}

// Failure is a panic of a goroutine that continued a response, with its stack.
type Failure struct {
	Value any
	Stack []byte
}

// Failed wraps the recovered value v with the stack of the caller. It returns nil, a *Failure and
// http.ErrAbortHandler unchanged.
func Failed(v any) any {
	if _, known := v.(*Failure); known || v == nil || v == http.ErrAbortHandler {
		return v
	}
	return &Failure{v, debug.Stack()}
}

// failResponse resets the stream after a panic, and logs the panic unless it is
// http.ErrAbortHandler.
func (s *stream) failResponse(reason any) {
	if f, ok := Failed(reason).(*Failure); ok {
		s.conn.log.Error("panic while serving", "client", s.conn.remote, "panic", f.Value, "stack", string(f.Stack))
	}
	s.abort()
}

// abort resets the stream of an incomplete response.
func (s *stream) abort() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.conn.streams[s.id] == s {
		s.conn.resetStream(s.id, http2.ErrCodeInternal, errResponseEnded)
	}
}

// cleanUp runs when the handler has returned and the response has ended. It frees the handler slot.
func (s *stream) cleanUp() {
	c := s.conn
	s.response.markHandlerDone()
	var unread int64
	if s.body != nil {
		unread = s.body.closeWithError(errResponseEnded)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returnCredit(nil, unread)
	if s.handlerDone {
		return
	}
	if c.streams[s.id] == s {
		c.resetStream(s.id, http2.ErrCodeNo, errResponseEnded) // the rest of the body is not needed
	}
	if s.readTimer != nil {
		s.readTimer.Stop()
	}
	s.handlerDone = true
	if s.deadline.timer != nil {
		s.deadline.timer.Stop()
	}
	s.cancel()
	c.runningHandlers--
	c.startWaitingHandler()
	c.flush(s)
}

// startWaitingHandler runs the handler of the oldest waiting stream that is still open, because a
// slot is free. The caller holds mu.
func (c *conn) startWaitingHandler() {
	for len(c.waitingForHandler) > 0 {
		next := c.waitingForHandler[0]
		c.waitingForHandler[0] = nil
		c.waitingForHandler = c.waitingForHandler[1:]
		if next.err == nil {
			c.runningHandlers++
			go next.runHandler()
			return
		}
	}
	if c.runningHandlers == 0 {
		c.idleSince = c.now()
	}
}
