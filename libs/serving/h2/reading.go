package h2

import (
	"io"
	"sync"

	"golang.org/x/net/http2"
)

// wireReader reads from the wire, also in the middle of a frame. Before it blocks, it flushes the
// queue and applies the throttle.
type wireReader struct{ c *conn }

// Read implements io.Reader.
func (r wireReader) Read(p []byte) (int, error) {
	c := r.c
	if err := c.waitForQueue(true); err != nil {
		return 0, err
	}
	if c.resets+c.control > 0 {
		c.wire.FramesReceived(c.resets, c.control)
		c.resets, c.control = 0, 0
	}
	c.wire.Throttle()
	n, err := c.wire.Read(p)
	if n > 0 {
		c.lastRead.Store(int64(c.now()))
	}
	return n, err
}

// readFrameHeader reads the next frame header.
func (c *conn) readFrameHeader() (frameHeader, error) {
	if err := c.waitForQueue(false); err != nil {
		return frameHeader{}, err
	}
	b, err := c.r.Peek(frameHeaderLen)
	if err != nil {
		return frameHeader{}, err
	}
	h := parseFrameHeader(b)
	_, _ = c.r.Discard(frameHeaderLen)
	if h.length > largestFrame {
		return h, newConnError(http2.ErrCodeFrameSize, "frame too large")
	}
	c.count(h)
	return h, nil
}

// waitForQueue flushes the queue if the reader is about to block. It also blocks the reader while
// the client requests more without reading the responses.
func (c *conn) waitForQueue(waits bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waits {
		c.flushAsync()
	}
	for c.err == nil && c.queue.size-c.queue.extra > 2*maxPending {
		c.flushAsync()
		c.queueSpace.Wait()
	}
	return c.err
}

// smallData is the size in bytes below which a DATA frame counts as a control frame.
const smallData = 64

// count counts resets and control frames.
func (c *conn) count(h frameHeader) {
	switch {
	case h.kind == http2.FrameRSTStream:
		c.resets++
	case h.kind == http2.FrameHeaders, h.kind == http2.FrameData: // see list and data
	default:
		c.control++
	}
}

// framePayloads holds buffers for payloads that do not fit into the reader's buffer.
var framePayloads = sync.Pool{New: func() any { b := make([]byte, largestFrame); return &b }}

// payload reads a payload. It stays in the reader's buffer if it fits.
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
