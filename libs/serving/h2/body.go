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
	stream    *stream
	expected  int64 // -1 if unknown
	want100   bool
	beforeEOF func() // fills the trailers; Read calls it before it returns io.EOF

	mu          sync.Mutex // leaf lock
	cond        sync.Cond
	data        []byte
	read        int    // data[:read] was read by the handler
	err         error  // returned after data
	waitingDest []byte // buffer of a Read that waits; write fills it directly
	destFilled  int    // bytes written to dest
	consumed    int64  // bytes that Read has returned
	window      int64  // the receive window of the stream
}

func newBody(s *stream) *body {
	b := &body{stream: s, expected: s.declaredLength, window: initialBodyWindow}
	b.cond.L = &b.mu
	return b
}

// initialBodyBuffer is the largest initial buffer of a body with a known length, in bytes.
const initialBodyBuffer = 16 << 10

// write passes received data to a waiting Read, and appends the rest to the buffer. It returns the
// number of bytes that nothing will read: len(data) if the body is closed, and otherwise 0.
func (b *body) write(data []byte) (discarded int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return len(data)
	}
	defer b.cond.Broadcast()
	if len(b.data) == b.read {
		n := copy(b.waitingDest[b.destFilled:], data)
		b.destFilled += n
		data = data[n:]
		if len(data) == 0 {
			return 0
		}
	}
	if b.data == nil && b.expected > 0 {
		b.data = make([]byte, 0, max(len(data), int(min(b.expected, initialBodyBuffer))))
	}
	if b.read > 0 && len(b.data)+len(data) > cap(b.data) {
		b.data = b.data[:copy(b.data, b.data[b.read:])]
		b.read = 0
	}
	b.data = append(b.data, data...)
	return 0
}

// finish marks the end of the body. Read returns the buffered data, and then err, which is io.EOF
// if the body is complete.
func (b *body) finish(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
		b.cond.Broadcast()
	}
}

// closeWithError discards the unread data and returns its size in bytes. Later reads return err.
func (b *body) closeWithError(err error) (unread int64) {
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
func (b *body) Read(data []byte) (int, error) {
	if b.want100 {
		b.want100 = false
		b.stream.sendContinue()
	}
	if len(data) == 0 {
		return 0, nil
	}
	b.growWindow()
	n, err := b.readReceived(data)
	if n > 0 {
		b.stream.returnConsumed(int64(n))
	}
	return n, err
}

// readReceived copies received bytes into data. It blocks until at least one has arrived or the body
// has ended.
func (b *body) readReceived(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waitingDest == nil && b.read == len(b.data) && b.err == nil {
		b.waitingDest = data
		for b.destFilled == 0 && b.err == nil {
			b.cond.Wait()
		}
		n := b.destFilled
		b.waitingDest = nil
		b.destFilled = 0
		b.consumed += int64(n)
		if n > 0 {
			return n, nil
		}
	}
	for b.read == len(b.data) && b.err == nil { // another goroutine reads too
		b.cond.Wait()
	}
	if b.read == len(b.data) {
		if b.err == io.EOF && b.beforeEOF != nil {
			b.beforeEOF()
			b.beforeEOF = nil
		}
		return 0, b.err
	}
	n := copy(data, b.data[b.read:])
	b.read += n
	b.consumed += int64(n)
	if b.read == len(b.data) {
		b.data = b.data[:0]
		b.read = 0
	}
	return n, nil
}

// Close implements io.Closer. Data that arrives later is discarded.
func (b *body) Close() error {
	b.stream.returnConsumed(b.closeWithError(http.ErrBodyReadAfterClose))
	return nil
}

// bodyWindowGrowth is the factor by which the receive window of a stream grows.
const bodyWindowGrowth = 4

// growWindow enlarges the receive window of the stream, up to bodyWindow, when the handler has read
// as many bytes as the window has and continues to read. A handler may wait for memory before it
// continues. Until then, the client can send no more than the handler has read.
func (b *body) growWindow() {
	b.mu.Lock()
	old := b.window
	if b.consumed >= old && old < bodyWindow && (b.expected < 0 || b.expected-b.consumed > old) {
		b.window = min(bodyWindowGrowth*old, bodyWindow)
	}
	grown := b.window
	b.mu.Unlock()
	if grown > old {
		b.stream.enlargeBodyWindow(grown-old, grown/4)
	}
}

// enlargeBodyWindow enlarges the stream's receive window by n bytes. step is the smallest increment
// that is announced from now on.
func (s *stream) enlargeBodyWindow(n, step int64) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.requestEnded || c.streams[s.id] != s {
		return
	}
	s.recvWindow.available += n
	s.recvWindow.step = step
	c.queue.append(appendWindowUpdate(c.scratch[:0], s.id, n))
	c.flush(s)
}

// returnConsumed adds n bytes that the handler has read to the receive windows, and flushes the
// WINDOW_UPDATE frames, if any.
func (s *stream) returnConsumed(n int64) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.queue.size
	c.returnCredit(s, n)
	if c.queue.size > before {
		c.flush(s)
	}
}

// handleData passes the data of a DATA frame to the body of its stream.
func (c *conn) handleData(h frameHeader) error {
	if h.streamID == 0 {
		return newConnError(http2.ErrCodeProtocol, "DATA on stream 0")
	}
	n := h.length
	if h.has(http2.FlagDataPadded) {
		if n == 0 {
			return newConnError(http2.ErrCodeFrameSize, "padding without length")
		}
		b, err := c.peekData(1)
		if err != nil {
			return err
		}
		n -= 1 + int(b[0])
		if n < 0 {
			return newConnError(http2.ErrCodeProtocol, "padding exceeds the frame")
		}
		_, _ = c.reader.Discard(1)
	}
	s, rejected := c.accountData(h, n)
	if n < smallData || s == nil {
		c.receivedControl++
	}
	var violation *connError
	if errors.As(rejected, &violation) {
		return rejected
	}
	unwanted, err := c.copyToBody(s, n)
	if err != nil {
		return err
	}
	paddingBytes := h.length - n
	if h.has(http2.FlagDataPadded) {
		_, err = c.reader.Discard(paddingBytes - 1)
	}
	c.mu.Lock()
	if s == nil {
		c.returnCredit(nil, int64(h.length))
	} else {
		c.returnCredit(s, int64(paddingBytes+unwanted))
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		return err
	case errors.Is(rejected, errStaleFrame):
		return nil
	case rejected != nil:
		return rejected
	case h.has(http2.FlagDataEndStream):
		return c.endRequest(s)
	}
	return nil
}

// accountData subtracts a DATA frame with n bytes of data from the receive windows. It returns a
// nil stream if the data must be discarded, and then an error: errStaleFrame if the client could
// not know that the stream is closed, and otherwise the violation.
func (c *conn) accountData(h frameHeader, n int) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isIdle(h.streamID):
		return nil, newConnError(http2.ErrCodeProtocol, "DATA on an idle stream")
	case int64(h.length) > c.recvWindow.available:
		return nil, newConnError(http2.ErrCodeFlowControl, "DATA exceeds the connection window")
	}
	c.recvWindow.available -= int64(h.length)
	s := c.streams[h.streamID]
	if s == nil {
		if _, byServer := c.recentlyClosed.find(h.streamID); byServer || h.streamID > c.lastStreamID {
			return nil, errStaleFrame
		}
		return nil, &streamError{h.streamID, http2.ErrCodeStreamClosed}
	}
	switch {
	case s.requestEnded:
		return nil, &streamError{h.streamID, http2.ErrCodeStreamClosed}
	case int64(h.length) > s.recvWindow.available:
		return nil, &streamError{h.streamID, http2.ErrCodeFlowControl}
	case s.declaredLength >= 0 && s.receivedLength+int64(n) > s.declaredLength:
		return nil, &streamError{h.streamID, http2.ErrCodeProtocol}
	}
	s.recvWindow.available -= int64(h.length)
	s.receivedLength += int64(n)
	return s, nil
}

// copyToBody reads n bytes and passes them to the body of s. If s is nil, it discards them. It
// returns the number of bytes that the handler of s will not read.
func (c *conn) copyToBody(s *stream, n int) (unwanted int, err error) {
	for n > 0 {
		data, err := c.peekData(n)
		if err != nil {
			return 0, err
		}
		if s != nil {
			unwanted += s.body.write(data)
		}
		_, _ = c.reader.Discard(len(data))
		n -= len(data)
	}
	return unwanted, nil
}

// peekData returns between 1 and n bytes without consuming them. It blocks if none are buffered.
func (c *conn) peekData(n int) ([]byte, error) {
	if c.reader.Buffered() == 0 {
		if err := c.waitForQueue(false); err != nil {
			return nil, err
		}
		if _, err := c.reader.Peek(1); err != nil {
			return nil, err
		}
	}
	return c.reader.Peek(min(n, c.reader.Buffered()))
}
