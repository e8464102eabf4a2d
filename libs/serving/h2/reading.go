package h2

import (
	"io"
	"sync"

	"golang.org/x/net/http2"
)

// reading is the wire as it is read, wherever in a frame that has to be. Before the client is
// waited for, what is pending leaves, and who floods waits.
type reading struct{ c *conn }

// Read implements io.Reader.
func (r reading) Read(p []byte) (int, error) {
	c := r.c
	if err := c.settle(true); err != nil {
		return 0, err
	}
	if c.resets+c.control > 0 {
		c.wire.Came(c.resets, c.control)
		c.resets, c.control = 0, 0
	}
	c.wire.Wait()
	n, err := c.wire.Read(p)
	if n > 0 {
		c.heard.Store(int64(c.now()))
	}
	return n, err
}

// next reads the head of a frame.
func (c *conn) next() (head, error) {
	if err := c.settle(false); err != nil {
		return head{}, err
	}
	b, err := c.r.Peek(headLength)
	if err != nil {
		return head{}, err
	}
	h := parseHead(b)
	_, _ = c.r.Discard(headLength)
	if h.length > largestFrame {
		return h, broken(http2.ErrCodeFrameSize, "a frame that is too large")
	}
	c.count(h)
	return h, nil
}

// settle has what is pending leave, if the reader is about to wait; and has it wait when a client
// asks without taking the answers.
func (c *conn) settle(waits bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waits {
		c.flushAsync()
	}
	for c.err == nil && c.queue.size-c.queue.extra > 2*mostPending {
		c.flushAsync()
		c.room.Wait()
	}
	return c.err
}

// smallData is a part of a body that does not pay for its frame, in bytes.
const smallData = 64

// count counts frames that reset a stream, and those that neither ask nor send anything to
// speak of.
func (c *conn) count(h head) {
	switch {
	case h.kind == http2.FrameRSTStream:
		c.resets++
	case h.kind == http2.FrameHeaders, h.kind == http2.FrameData: // see list and data
	default:
		c.control++
	}
}

// framePayloads are those that the reader's own buffer has no room for.
var framePayloads = sync.Pool{New: func() any { b := make([]byte, largestFrame); return &b }}

// payload reads what a frame has. It stays in the reader's buffer, if it may.
func (c *conn) payload(length int) (p []byte, large *[]byte, err error) {
	if length <= c.r.Size() {
		p, err = c.r.Peek(length)
		return p, nil, err
	}
	large = framePayloads.Get().(*[]byte)
	if _, err = io.ReadFull(c.r, (*large)[:length]); err != nil {
		framePayloads.Put(large)
		return nil, nil, err
	}
	return (*large)[:length], large, nil
}
