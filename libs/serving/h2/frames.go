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

// frameHeader is the 9-byte header of a frame (RFC 9113, "Frame Format"): 24 bits of length, 8 bits
// of type, 8 bits of flags, a reserved bit, and 31 bits of stream ID.
type frameHeader struct {
	length   int // of the payload, in bytes
	kind     http2.FrameType
	flags    http2.Flags
	streamID uint32
}

// parseFrameHeader decodes the first frameHeaderLen bytes of b.
func parseFrameHeader(b []byte) frameHeader {
	return frameHeader{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind:   http2.FrameType(b[3]), flags: http2.Flags(b[4]),
		streamID: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
	}
}

func (h frameHeader) has(f http2.Flags) bool { return h.flags&f != 0 }

func appendFrameHeader(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

// appendSettings appends a SETTINGS frame. Each setting has 2 bytes of ID and 4 bytes of value.
func appendSettings(data []byte, settings ...http2.Setting) []byte {
	data = appendFrameHeader(data, 6*len(settings), http2.FrameSettings, 0, 0)
	for _, s := range settings {
		data = binary.BigEndian.AppendUint16(data, uint16(s.ID))
		data = binary.BigEndian.AppendUint32(data, s.Val)
	}
	return data
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
	streamID uint32
	code     http2.ErrCode
}

func (e *streamError) Error() string { return fmt.Sprintf("stream %d: %s", e.streamID, e.code) }

// unpad returns the payload without its padding. A padded payload is 1 byte of padding length, the
// data, and the padding. It returns false if the padding exceeds the payload.
func unpad(h frameHeader, data []byte) ([]byte, bool) {
	if !h.has(http2.FlagDataPadded) { // HEADERS use the same bit
		return data, true
	}
	if len(data) == 0 || int(data[0]) > len(data)-1 {
		return nil, false
	}
	return data[1 : len(data)-int(data[0])], true
}

// wireReader is the source of conn.reader. A read may block, so it first flushes the queue, reports
// received frames to the wire, and applies the throttle.
type wireReader struct{ c *conn }

// Read implements io.Reader.
func (r wireReader) Read(data []byte) (int, error) {
	c := r.c
	if err := c.waitForQueue(true); err != nil {
		return 0, err
	}
	if c.receivedResets+c.receivedControl > 0 {
		c.wire.FramesReceived(c.receivedResets, c.receivedControl)
		c.receivedResets = 0
		c.receivedControl = 0
	}
	c.wire.Throttle()
	n, err := c.wire.Read(data)
	if n > 0 {
		c.lastReadAt.Store(int64(c.now()))
	}
	return n, err
}

// readFrameHeader reads the next frame header, and counts the frame.
func (c *conn) readFrameHeader() (frameHeader, error) {
	if err := c.waitForQueue(false); err != nil {
		return frameHeader{}, err
	}
	b, err := c.reader.Peek(frameHeaderLen)
	if err != nil {
		return frameHeader{}, err
	}
	h := parseFrameHeader(b)
	_, _ = c.reader.Discard(frameHeaderLen)
	if h.length > largestFrame {
		return h, newConnError(http2.ErrCodeFrameSize, "frame too large")
	}
	c.countFrame(h)
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

// countFrame counts RST_STREAM and control frames for Wire.FramesReceived.
func (c *conn) countFrame(h frameHeader) {
	switch {
	case h.kind == http2.FrameRSTStream:
		c.receivedResets++
	case h.kind == http2.FrameHeaders, h.kind == http2.FrameData: // handleHeaderBlock and handleData count these
	default:
		c.receivedControl++
	}
}

// framePayloads holds buffers for payloads that do not fit into the reader's buffer.
var framePayloads = sync.Pool{New: func() any { b := make([]byte, largestFrame); return &b }}

// readPayload returns the payload of a frame. A payload that fits stays in the reader's buffer, and
// the caller discards it from there. A larger one is in a pooled buffer, large, which the caller
// returns to framePayloads.
func (c *conn) readPayload(length int) (p []byte, large *[]byte, err error) {
	if length <= c.reader.Size() {
		p, err = c.reader.Peek(length)
		return p, nil, err
	}
	large = framePayloads.Get().(*[]byte)
	if _, err = io.ReadFull(c.reader, (*large)[:length]); err != nil {
		framePayloads.Put(large)
		return nil, nil, err
	}
	return (*large)[:length], large, nil
}

// priorityDependency returns the stream dependency in the first 4 bytes of p. The highest bit is
// the exclusive flag.
func priorityDependency(p []byte) uint32 { return binary.BigEndian.Uint32(p) &^ (1 << 31) }

const (
	// maxSettings is the largest number of settings in a frame.
	maxSettings = 100
	// settingLen is the size in bytes of a setting: an id of 2 bytes and a value of 4 bytes.
	settingLen = 6
	// unchanged is the argument of setInitialWindow if the client does not set the window.
	unchanged int64 = -1
)

// streamsPerFrame is the number of open streams for which a SETTINGS frame counts as one more
// control frame, because it may change the window of each stream.
const streamsPerFrame = 8

// handleSettings applies and acknowledges the SETTINGS of the client. It ignores
// SETTINGS_MAX_FRAME_SIZE, because no frame is larger than the smallest value of that setting.
func (c *conn) handleSettings(h frameHeader, data []byte) error {
	switch {
	case h.streamID != 0:
		return newConnError(http2.ErrCodeProtocol, "SETTINGS on a stream")
	case h.has(http2.FlagSettingsAck) && len(data) > 0, len(data)%settingLen != 0:
		return newConnError(http2.ErrCodeFrameSize, "SETTINGS of invalid size")
	case h.has(http2.FlagSettingsAck):
		return nil
	case len(data) > maxSettings*settingLen:
		return newConnError(http2.ErrCodeProtocol, "too many settings")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receivedControl += len(c.streams) / streamsPerFrame
	newWindow := unchanged
	for ; len(data) > 0; data = data[settingLen:] {
		setting := http2.Setting{ID: http2.SettingID(binary.BigEndian.Uint16(data)), Val: binary.BigEndian.Uint32(data[2:])}
		if err := setting.Valid(); err != nil {
			if code, ok := err.(http2.ConnectionError); ok {
				return newConnError(http2.ErrCode(code), setting.String())
			}
			return newConnError(http2.ErrCodeProtocol, setting.String())
		}
		switch setting.ID {
		case http2.SettingHeaderTableSize:
			c.headerEncoder.SetMaxDynamicTableSize(setting.Val)
		case http2.SettingInitialWindowSize:
			newWindow = int64(setting.Val)
		}
	}
	if err := c.setInitialWindow(newWindow); err != nil {
		return err
	}
	c.queue.append(appendFrameHeader(c.scratch[:0], 0, http2.FrameSettings, http2.FlagSettingsAck, 0))
	return nil
}

// setInitialWindow sets the initial send window of streams, in bytes, and adjusts open streams. The
// caller holds mu.
func (c *conn) setInitialWindow(n int64) error {
	if n == unchanged || n == c.initialSendWindow {
		return nil
	}
	change := n - c.initialSendWindow
	c.initialSendWindow = n
	for _, s := range c.streams {
		wasClosed := s.sendWindow <= 0
		s.sendWindow += change
		if s.sendWindow > largestWindow {
			return newConnError(http2.ErrCodeFlowControl, "window too large")
		}
		if wasClosed && s.sendWindow > 0 {
			s.signal()
		}
	}
	return nil
}

// handleWindowUpdate enlarges the send window of a stream, or of the connection for stream 0.
func (c *conn) handleWindowUpdate(h frameHeader, p []byte) error {
	if len(p) != 4 {
		return newConnError(http2.ErrCodeFrameSize, "WINDOW_UPDATE of invalid size")
	}
	n := int64(binary.BigEndian.Uint32(p) &^ (1 << 31))
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.streamID == 0 {
		switch {
		case n == 0:
			return newConnError(http2.ErrCodeProtocol, "WINDOW_UPDATE of 0")
		case c.sendWindow+n > largestWindow:
			return newConnError(http2.ErrCodeFlowControl, "window too large")
		}
		c.sendWindow += n
		c.wakeForConnWindow()
		return nil
	}
	if c.isIdle(h.streamID) {
		return newConnError(http2.ErrCodeProtocol, "WINDOW_UPDATE on an idle stream")
	}
	s := c.streams[h.streamID]
	switch {
	case n == 0: // also on a closed stream, because the client may not know that it is closed
		return &streamError{h.streamID, http2.ErrCodeProtocol}
	case s == nil:
		return nil
	case s.sendWindow+n > largestWindow:
		return &streamError{h.streamID, http2.ErrCodeFlowControl}
	}
	s.sendWindow += n
	s.signal()
	return nil
}
