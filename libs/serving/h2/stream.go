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

// errEnded is the error of writes after the end of a response.
var errEnded = errors.New("the response has ended")

// window is a receive window.
type window struct {
	available   int64 // bytes that the client may send
	unannounced int64 // consumed bytes without a WINDOW_UPDATE yet
	step        int64 // smallest WINDOW_UPDATE
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

// closedStreams remembers recently closed streams.
type closedStreams struct {
	oldest  int // index in streams; replaced next
	streams [128]struct {
		id   uint32
		byUs bool
	}
}

// add adds a stream. byUs is whether the server reset it.
func (r *closedStreams) add(id uint32, byUs bool) {
	r.streams[r.oldest].id = id
	r.streams[r.oldest].byUs = byUs
	r.oldest = (r.oldest + 1) % len(r.streams)
}

// find reports whether a stream was closed recently, and whether the server reset it.
func (r *closedStreams) find(id uint32) (closed, byUs bool) {
	for _, s := range r.streams {
		if s.id == id {
			closed, byUs = true, byUs || s.byUs
		}
	}
	return closed, byUs
}

// markResetByClient records that the client has reset a closed stream.
func (r *closedStreams) markResetByClient(id uint32) {
	for i := range r.streams {
		if r.streams[i].id == id {
			r.streams[i].byUs = false
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
	declared, received int64 // bytes of the body; declared is -1 if unknown
	trailer            http.Header

	// Guarded by conn.mu.
	sendWindow                  int64 // for DATA to the client
	recvWindow                  window
	err                         error // why the stream was closed early
	responseEnded, requestEnded bool  // END_STREAM was sent; END_STREAM was received
	handlerDone                 bool  // the handler has returned
	hasToken                    bool  // holds the write token
	writing                     bool  // a write in progress contains its large data
	expired                     error // why the stream must be reset after that write
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

// setReadDeadline sets the deadline for reading the body.
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
		s.readTimer = time.AfterFunc(remaining, func() { s.consumed(s.body.close(os.ErrDeadlineExceeded)) })
		return
	}
	c.refund(s, s.body.close(os.ErrDeadlineExceeded))
	c.flushAsync()
}

// open starts a stream. The caller holds mu.
func (c *conn) open(s *stream) error {
	c.streams[s.id] = s
	s.sendWindow = c.initialSendWindow
	s.recvWindow = window{available: initialBodyWindow, step: initialBodyWindow / 4}
	s.stall.timeout = c.config.StallTimeout
	if c.config.ResponseTimeout > 0 {
		s.deadline.at = time.Now().Add(c.config.ResponseTimeout)
		s.checkDeadline()
	}
	if c.running < c.config.MaxStreams {
		c.running++
		go s.run()
		return nil
	}
	if len(c.waiting) >= maxQueuedPerStream*c.config.MaxStreams {
		c.waiting = slices.DeleteFunc(c.waiting, func(s *stream) bool { return s.err != nil })
	}
	if len(c.waiting) >= maxQueuedPerStream*c.config.MaxStreams {
		return newConnError(http2.ErrCodeEnhanceYourCalm, "requests are reset faster than their handlers return")
	}
	c.waiting = append(c.waiting, s)
	return nil
}

// reset resets a stream with a code. Writes to it fail with err. The caller holds mu.
func (c *conn) reset(id uint32, code http2.ErrCode, err error) {
	c.queue.put(appendReset(c.scratch[:0], id, code))
	if code != http2.ErrCodeNo { // otherwise the response is complete
		c.resetting++
	}
	if s := c.streams[id]; s != nil {
		c.close(s, err)
	} else {
		c.closed.add(id, true)
	}
}

// close closes a stream. err is nil if both sides have sent everything. The caller holds mu.
func (c *conn) close(s *stream, err error) {
	if c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	c.closed.add(s.id, err != nil && err != errReset)
	if err != nil {
		s.err = err
		s.cancel()
		if s.body != nil {
			c.refund(nil, s.body.close(err))
		}
		for _, f := range s.onClose {
			f()
		}
		s.onClose = nil
		s.signal()
	}
	if len(c.streams) == 0 {
		c.idle = c.now()
		c.closeWhenDone()
	}
}

// addOnClose implements response.OnClose.
func (s *stream) addOnClose(f func()) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	endMayBeUnwritten := c.err == nil && s.err == nil && s.responseEnded && (c.queue.size > 0 || c.writing)
	switch {
	case c.streams[s.id] == s && !s.responseEnded:
		s.onClose = append(s.onClose, f)
	case endMayBeUnwritten:
		c.closeFuncs = append(c.closeFuncs, f)
	default:
		f()
	}
}

// refund returns n bytes that were read or discarded to the windows. The caller holds mu.
func (c *conn) refund(s *stream, n int64) {
	if n == 0 {
		return
	}
	if n := c.recvWindow.credit(n); n > 0 {
		c.queue.put(appendWindowUpdate(c.scratch[:0], 0, n))
	}
	if s == nil || s.requestEnded || c.streams[s.id] != s {
		return
	}
	if n := s.recvWindow.credit(n); n > 0 {
		c.queue.put(appendWindowUpdate(c.scratch[:0], s.id, n))
	}
}

// run calls the handler, and ends or detaches the response.
func (s *stream) run() {
	returned := false
	defer func() {
		if !returned {
			s.fail(recover())
			s.cleanUp()
		}
	}()
	s.handler.ServeHTTP(&s.response, s.request)
	if more := s.response.detached; more != nil {
		s.response.detached = nil
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
			s.fail(failure)
		}
		s.cleanUp()
	}()
	if failure != nil {
		s.fail(failure)
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

// fail logs a panic and resets the stream.
func (s *stream) fail(reason any) {
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
		s.conn.reset(s.id, http2.ErrCodeInternal, errEnded)
	}
}

// cleanUp is called when the handler has returned and the response has ended.
func (s *stream) cleanUp() {
	c := s.conn
	s.response.close()
	var unread int64
	if s.body != nil {
		unread = s.body.close(errEnded)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refund(nil, unread)
	if s.handlerDone {
		return
	}
	if c.streams[s.id] == s {
		c.reset(s.id, http2.ErrCodeNo, errEnded) // the rest of the body is not needed
	}
	if s.readTimer != nil {
		s.readTimer.Stop()
	}
	s.handlerDone = true
	if s.deadline.timer != nil {
		s.deadline.timer.Stop()
	}
	s.cancel()
	c.running--
	c.runNext()
	c.flush(s)
}

// runNext starts the next waiting handler whose stream is open. The caller holds mu.
func (c *conn) runNext() {
	for len(c.waiting) > 0 {
		next := c.waiting[0]
		c.waiting[0] = nil
		c.waiting = c.waiting[1:]
		if next.err == nil {
			c.running++
			go next.run()
			return
		}
	}
	if c.running == 0 {
		c.idle = c.now()
	}
}
