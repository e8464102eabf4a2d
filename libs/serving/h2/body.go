package h2

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"golang.org/x/net/http2"
)

// body is a request body. The handler calls Read and Close. The reader of the connection calls
// write and finish.
type body struct {
	stream   *stream
	expected int64 // -1 if unknown
	want100  bool
	reading  bool   // the handler has called Read
	eof      func() // called before EOF is returned

	mu         sync.Mutex // leaf lock
	cond       sync.Cond
	data       []byte
	read       int    // offset of the unread bytes in data
	err        error  // returned after data
	dest       []byte // buffer of a waiting Read, which write fills directly
	destFilled int    // bytes written to dest
}

func newBody(s *stream) *body {
	b := &body{stream: s, expected: s.declared}
	b.cond.L = &b.mu
	return b
}

// initialBodyBuffer is the largest initial buffer of a body with a known length, in bytes.
const initialBodyBuffer = 16 << 10

// write appends received data. It returns len(p) if the handler has closed the body, and 0 otherwise.
func (b *body) write(p []byte) (discarded int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return len(p)
	}
	defer b.cond.Broadcast()
	if len(b.data) == b.read {
		n := copy(b.dest[b.destFilled:], p)
		b.destFilled += n
		p = p[n:]
		if len(p) == 0 {
			return 0
		}
	}
	if b.data == nil && b.expected > 0 {
		b.data = make([]byte, 0, max(len(p), int(min(b.expected, initialBodyBuffer))))
	}
	if b.read > 0 && len(b.data)+len(p) > cap(b.data) {
		b.data = b.data[:copy(b.data, b.data[b.read:])]
		b.read = 0
	}
	b.data = append(b.data, p...)
	return 0
}

// finish ends the body. Read returns err after the data: io.EOF if the body is complete.
func (b *body) finish(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
		b.cond.Broadcast()
	}
}

// close discards the unread data and returns its size. Later reads return err.
func (b *body) close(err error) (unread int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	unread = int64(len(b.data) - b.read)
	b.data = nil
	b.read = 0
	if b.err == nil || b.err == io.EOF && unread > 0 {
		b.err = err
	}
	b.cond.Broadcast()
	return unread
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.want100 {
		b.want100 = false
		b.stream.sendContinue()
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !b.reading {
		b.reading = true
		if b.expected < 0 || b.expected > initialBodyWindow {
			b.stream.openWindow()
		}
	}
	n, err := b.take(p)
	if n > 0 {
		b.stream.consumed(int64(n))
	}
	return n, err
}

// take reads received bytes into p. It waits until some have arrived.
func (b *body) take(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dest == nil && b.read == len(b.data) && b.err == nil {
		b.dest = p
		for b.destFilled == 0 && b.err == nil {
			b.cond.Wait()
		}
		n := b.destFilled
		b.dest = nil
		b.destFilled = 0
		if n > 0 {
			return n, nil
		}
	}
	for b.read == len(b.data) && b.err == nil { // another goroutine reads too
		b.cond.Wait()
	}
	if b.read == len(b.data) {
		if b.err == io.EOF && b.eof != nil {
			b.eof()
			b.eof = nil
		}
		return 0, b.err
	}
	n := copy(p, b.data[b.read:])
	b.read += n
	if b.read == len(b.data) {
		b.data = b.data[:0]
		b.read = 0
	}
	return n, nil
}

// Close implements io.Closer. Data that arrives later is discarded.
func (b *body) Close() error {
	b.stream.consumed(b.close(http.ErrBodyReadAfterClose))
	return nil
}

// openWindow enlarges the stream's window from initialBodyWindow to bodyWindow.
func (s *stream) openWindow() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.requestEnded || c.streams[s.id] != s {
		return
	}
	s.recvWindow.available += bodyWindow - initialBodyWindow
	s.recvWindow.step = bodyWindow / 4
	c.queue.put(appendWindowUpdate(c.scratch[:0], s.id, bodyWindow-initialBodyWindow))
	c.flush(s)
}

// consumed returns n bytes to the windows.
func (s *stream) consumed(n int64) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.queue.size
	c.refund(s, n)
	if c.queue.size > before {
		c.flush(s)
	}
}

// handleData handles a DATA frame.
func (c *conn) handleData(h frameHeader) error {
	if h.stream == 0 {
		return newConnError(http2.ErrCodeProtocol, "DATA on stream 0")
	}
	n := h.length
	if h.has(http2.FlagDataPadded) {
		if n == 0 {
			return newConnError(http2.ErrCodeFrameSize, "padding without length")
		}
		b, err := c.peek(1)
		if err != nil {
			return err
		}
		n -= 1 + int(b[0])
		if n < 0 {
			return newConnError(http2.ErrCodeProtocol, "padding exceeds the frame")
		}
		_, _ = c.r.Discard(1)
	}
	s, rejected := c.accountData(h, n)
	if n < smallData || s == nil {
		c.control++
	}
	var violation *connError
	if errors.As(rejected, &violation) {
		return rejected
	}
	unwanted, err := c.readBody(s, n)
	if err != nil {
		return err
	}
	paddingBytes := h.length - n
	if h.has(http2.FlagDataPadded) {
		_, err = c.r.Discard(paddingBytes - 1)
	}
	c.mu.Lock()
	if s == nil {
		c.refund(nil, int64(h.length))
	} else {
		c.refund(s, int64(paddingBytes+unwanted))
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		return err
	case errors.Is(rejected, errIgnored):
		return nil
	case rejected != nil:
		return rejected
	case h.has(http2.FlagDataEndStream):
		return c.endRequest(s)
	}
	return nil
}

// accountData subtracts a DATA frame with n bytes of data from the receive windows. It returns no
// stream if the data is to be discarded, and errIgnored if the client could not know that the stream
// is closed.
func (c *conn) accountData(h frameHeader, n int) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isIdle(h.stream):
		return nil, newConnError(http2.ErrCodeProtocol, "DATA on an idle stream")
	case int64(h.length) > c.recvWindow.available:
		return nil, newConnError(http2.ErrCodeFlowControl, "DATA exceeds the connection window")
	}
	c.recvWindow.available -= int64(h.length)
	s := c.streams[h.stream]
	if s == nil {
		if _, byUs := c.closed.find(h.stream); byUs || h.stream > c.last {
			return nil, errIgnored
		}
		return nil, &streamError{h.stream, http2.ErrCodeStreamClosed}
	}
	switch {
	case s.requestEnded:
		return nil, &streamError{h.stream, http2.ErrCodeStreamClosed}
	case int64(h.length) > s.recvWindow.available:
		return nil, &streamError{h.stream, http2.ErrCodeFlowControl}
	case s.declared >= 0 && s.received+int64(n) > s.declared:
		return nil, &streamError{h.stream, http2.ErrCodeProtocol}
	}
	s.recvWindow.available -= int64(h.length)
	s.received += int64(n)
	return s, nil
}

// readBody passes n bytes of data to the body of s. It returns the number of bytes that the handler
// will not read.
func (c *conn) readBody(s *stream, n int) (unwanted int, err error) {
	for n > 0 {
		p, err := c.peek(n)
		if err != nil {
			return 0, err
		}
		if s != nil {
			unwanted += s.body.write(p)
		}
		_, _ = c.r.Discard(len(p))
		n -= len(p)
	}
	return unwanted, nil
}

// peek returns between 1 and n bytes without consuming them. It blocks if none are buffered.
func (c *conn) peek(n int) ([]byte, error) {
	if c.r.Buffered() == 0 {
		if err := c.waitForQueue(false); err != nil {
			return nil, err
		}
		if _, err := c.r.Peek(1); err != nil {
			return nil, err
		}
	}
	return c.r.Peek(min(n, c.r.Buffered()))
}
