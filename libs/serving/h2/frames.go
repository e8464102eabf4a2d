package h2

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"golang.org/x/net/http2"
)

const (
	frameHeaderLen = 9
	// largestFrame is the size of the largest frame that is read or written, in bytes. Larger
	// frames gain nothing, because a TLS record is not larger.
	largestFrame = 16 << 10
	// initialWindow is the initial flow-control window in bytes (RFC 9113).
	initialWindow = 65535
	largestWindow = 1<<31 - 1
)

// frameHeader is the header of a frame.
type frameHeader struct {
	length int
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
}

func parseFrameHeader(b []byte) frameHeader {
	return frameHeader{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind:   http2.FrameType(b[3]), flags: http2.Flags(b[4]),
		stream: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
	}
}

func (h frameHeader) has(f http2.Flags) bool { return h.flags&f != 0 }

func appendFrameHeader(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func appendSettings(b []byte, settings ...http2.Setting) []byte {
	b = appendFrameHeader(b, 6*len(settings), http2.FrameSettings, 0, 0)
	for _, s := range settings {
		b = binary.BigEndian.AppendUint16(b, uint16(s.ID))
		b = binary.BigEndian.AppendUint32(b, s.Val)
	}
	return b
}

func appendWindowUpdate(b []byte, stream uint32, n int64) []byte {
	b = appendFrameHeader(b, 4, http2.FrameWindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendReset(b []byte, stream uint32, code http2.ErrCode) []byte {
	b = appendFrameHeader(b, 4, http2.FrameRSTStream, 0, stream)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

func appendGoAway(b []byte, last uint32, code http2.ErrCode) []byte {
	b = appendFrameHeader(b, 8, http2.FrameGoAway, 0, 0)
	b = binary.BigEndian.AppendUint32(b, last)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

func appendPing(b []byte, flags http2.Flags, data []byte) []byte {
	return append(appendFrameHeader(b, len(data), http2.FramePing, flags, 0), data...)
}

// connError is a protocol violation that ends the connection.
type connError struct {
	code   http2.ErrCode
	reason string
}

func (e *connError) Error() string { return fmt.Sprintf("%s: %s", e.code, e.reason) }

func newConnError(code http2.ErrCode, reason string) error { return &connError{code, reason} }

// streamError is a protocol violation that ends a stream.
type streamError struct {
	stream uint32
	code   http2.ErrCode
}

func (e *streamError) Error() string { return fmt.Sprintf("stream %d: %s", e.stream, e.code) }

// unpad removes the padding of a payload. It returns false if the padding exceeds the payload.
func unpad(h frameHeader, p []byte) ([]byte, bool) {
	if !h.has(http2.FlagDataPadded) { // HEADERS use the same bit
		return p, true
	}
	if len(p) == 0 || int(p[0]) > len(p)-1 {
		return nil, false
	}
	return p[1 : len(p)-int(p[0])], true
}

// wireReader is the source of conn.r. Before each read, which may block, it flushes the queue,
// reports received frames to the wire, and applies the throttle.
type wireReader struct{ c *conn }

// Read implements io.Reader.
func (r wireReader) Read(p []byte) (int, error) {
	c := r.c
	if err := c.waitForQueue(true); err != nil {
		return 0, err
	}
	if c.resets+c.control > 0 {
		c.wire.FramesReceived(c.resets, c.control)
		c.resets = 0
		c.control = 0
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

// waitForQueue blocks the reader while the queue is too long, so that a client cannot send requests
// without reading the responses. If the reader is about to block, it first flushes the queue.
func (c *conn) waitForQueue(aboutToBlock bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if aboutToBlock {
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
	case h.kind == http2.FrameHeaders, h.kind == http2.FrameData: // handleHeaderBlock and handleData count these
	default:
		c.control++
	}
}

// framePayloads holds buffers for payloads that do not fit into the reader's buffer.
var framePayloads = sync.Pool{New: func() any { b := make([]byte, largestFrame); return &b }}

// payload returns the payload of a frame. A payload that fits stays in the reader's buffer, and the
// caller discards it from there. A larger one is in a pooled buffer, large, which the caller returns
// to framePayloads.
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
