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

// errEnded is what becomes of what is sent after the end of an answer.
var errEnded = errors.New("the answer has ended")

// window is what the client may send.
type window struct {
	left int64 // of what it knows
	owed int64 // that it has not been told of
	step int64 // it is told of so much
}

// give returns what the client is to be told of, if it is worth a frame.
func (w *window) give(n int64) int64 {
	if w.owed += n; w.owed < w.step {
		return 0
	}
	n, w.owed = w.owed, 0
	w.left += n
	return n
}

// ring remembers the streams that were closed lately.
type ring struct {
	at      int
	streams [128]struct {
		id   uint32
		byUs bool
	}
}

func (r *ring) add(id uint32, byUs bool) {
	r.streams[r.at].id, r.streams[r.at].byUs = id, byUs
	r.at = (r.at + 1) % len(r.streams)
}

// find tells whether a stream was closed lately, and whether the server has reset it.
func (r *ring) find(id uint32) (closed, byUs bool) {
	for _, s := range r.streams {
		if s.id == id {
			closed, byUs = true, byUs || s.byUs
		}
	}
	return closed, byUs
}

// resetToo tells that the client has reset a stream, whoever closed it.
func (r *ring) resetToo(id uint32) {
	for i := range r.streams {
		if r.streams[i].id == id {
			r.streams[i].byUs = false
		}
	}
}

// stream is a request and its answer.
type stream struct {
	conn    *conn
	id      uint32
	request *http.Request
	ctx     context.Context
	cancel  context.CancelFunc
	body    *body // nil when there is none
	answer  response
	handler http.Handler
	begun   atomic.Bool // the answer

	// Of the goroutine that reads.
	declared, received int64 // bytes of the body; -1 when they are not declared
	trailer            http.Header

	// Guarded by conn.mu.
	out        int64 // what the client takes
	in         window
	err        error // why it was closed before its end
	sent, got  bool  // the ends of the answer and of the request
	ended      bool  // the handler has returned
	handed     bool  // the write token
	writing    bool  // large data of it are being written
	expired    error // why it is reset once they are
	wake       chan struct{}
	onClose    []func()
	deadline   deadline
	stall      stall
	lateReader *time.Timer
}

// signal has wait return. The caller holds mu.
func (s *stream) signal() {
	if s.wake == nil {
		return // nobody has waited yet
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// wait waits for a signal, which may be an old one. The caller holds mu, which is not held
// meanwhile.
func (s *stream) wait() {
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
	}
	s.conn.mu.Unlock()
	<-s.wake
	s.conn.mu.Lock()
}

// setReadDeadline bounds how long the body is waited for.
func (s *stream) setReadDeadline(t time.Time) {
	if s.body == nil {
		return
	}
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.lateReader != nil {
		s.lateReader.Stop()
		s.lateReader = nil
	}
	if t.IsZero() {
		return
	}
	if left := time.Until(t); left > 0 {
		s.lateReader = time.AfterFunc(left, func() { s.consumed(s.body.close(os.ErrDeadlineExceeded)) })
		return
	}
	c.refund(s, s.body.close(os.ErrDeadlineExceeded))
	c.flushAsync()
}

// open begins a stream. The caller holds mu.
func (c *conn) open(s *stream) error {
	c.streams[s.id] = s
	s.out, s.in = c.outFirst, window{left: unread, step: unread / 4}
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
	if len(c.waiting) >= queued*c.config.MaxStreams {
		c.waiting = slices.DeleteFunc(c.waiting, func(s *stream) bool { return s.err != nil })
	}
	if len(c.waiting) >= queued*c.config.MaxStreams {
		return broken(http2.ErrCodeEnhanceYourCalm, "requests are given up faster than they end")
	}
	c.waiting = append(c.waiting, s)
	return nil
}

// reset ends a stream for what its client did. The caller holds mu.
func (c *conn) reset(id uint32, code http2.ErrCode) { c.resetFor(id, code, errBad) }

func (c *conn) resetFor(id uint32, code http2.ErrCode, err error) {
	c.queue.put(appendReset(c.scratch[:0], id, code))
	if code != http2.ErrCodeNo { // else it was answered
		c.resetting++
	}
	if s := c.streams[id]; s != nil {
		c.close(s, err)
	} else {
		c.closed.add(id, true)
	}
}

// close ends a stream; err is nil when all has been sent and received. The caller holds mu.
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

// addOnClose: see response.OnClose.
func (s *stream) addOnClose(f func()) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.streams[s.id] == s && !s.sent:
		s.onClose = append(s.onClose, f)
	case c.err == nil && s.sent && s.err == nil && (c.queue.size > 0 || c.writing): // its end may be in what is being written
		c.closing = append(c.closing, f)
	default:
		f()
	}
}

// refund lets the client send again what has been read, or thrown away. The caller holds mu.
func (c *conn) refund(s *stream, n int64) {
	if n == 0 {
		return
	}
	if n := c.in.give(n); n > 0 {
		c.queue.put(appendWindowUpdate(c.scratch[:0], 0, n))
	}
	if s == nil || s.got || c.streams[s.id] != s {
		return
	}
	if n := s.in.give(n); n > 0 {
		c.queue.put(appendWindowUpdate(c.scratch[:0], s.id, n))
	}
}

// run answers the request, or has the answer outlast the handler.
func (s *stream) run() {
	returned := false
	defer func() {
		if !returned {
			s.panicked(recover())
			s.end()
		}
	}()
	s.handler.ServeHTTP(&s.answer, s.request)
	if more := s.answer.more; more != nil {
		s.answer.more = nil
		s.shed()
		more(s.over)
	} else {
		s.over(nil)
	}
	returned = true
}

// shed gives up what only handlers need.
func (s *stream) shed() {
	s.answer.shed()
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.handler = nil
	if s.got { // else there may be trailers
		s.request = nil
	}
}

// over ends the answer, or tells that it failed.
func (s *stream) over(failure any) {
	defer func() {
		if failure := recover(); failure != nil {
			s.panicked(failure)
		}
		s.end()
	}()
	if failure != nil {
		s.panicked(failure)
		return
	}
	s.answer.finish()
}

// Failure is what a goroutine panicked with that went on with an answer, and where.
type Failure struct {
	Value any
	Stack []byte
}

// Failed is the failure of who has recovered from v, with the stack of the caller. Nothing, what is
// known to be a failure, and http.ErrAbortHandler stay what they are.
func Failed(v any) any {
	if _, known := v.(*Failure); known || v == nil || v == http.ErrAbortHandler {
		return v
	}
	return &Failure{v, debug.Stack()}
}

// panicked ends the stream of a handler that did not return.
func (s *stream) panicked(reason any) {
	if f, ok := Failed(reason).(*Failure); ok {
		s.conn.log.Error("a request panicked", "client", s.conn.remote, "panic", f.Value, "stack", string(f.Stack))
	}
	s.abort()
}

// abort tells the client that the answer is not whole.
func (s *stream) abort() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.conn.streams[s.id] == s {
		s.conn.resetFor(s.id, http2.ErrCodeInternal, errEnded)
	}
}

// end is called when the handler has returned, and nothing outlasts it.
func (s *stream) end() {
	c := s.conn
	s.answer.over()
	var unread int64
	if s.body != nil {
		unread = s.body.close(errEnded)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refund(nil, unread)
	if s.ended {
		return
	}
	if c.streams[s.id] == s {
		c.resetFor(s.id, http2.ErrCodeNo, errEnded) // the rest of the body is not wanted
	}
	if s.lateReader != nil {
		s.lateReader.Stop()
	}
	if s.ended = true; s.deadline.timer != nil {
		s.deadline.timer.Stop()
	}
	s.cancel()
	c.running--
	c.runNext()
	c.flush(s)
}

// runNext has a handler begin that waits, if its stream is still there. The caller holds mu.
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
