package h2

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"slices"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// part is a part of a response: header fields, data, trailers and the end of the stream, in this
// order. Each is optional.
type part struct {
	fields   []hpack.HeaderField
	data     []byte
	trailers []hpack.HeaderField
	end      bool
	when     urgency
}

// urgency says when a part is written to the wire.
type urgency int

const (
	// writeNow writes as soon as the write token (schedule.go) is free.
	writeNow urgency = iota
	// writeAfterYield yields to the other streams of the connection first, so that their data
	// leaves in the same write.
	writeAfterYield
	// writeWithNextPart writes with the next part.
	writeWithNextPart
)

// send sends a part. It returns when the part is written or queued. Then the caller may reuse data.
func (s *stream) send(p part) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.sendFields(&p); err != nil {
		return err
	}
	if err := s.sendData(&p); err != nil {
		c.wakeForConnWindow() // this stream may have consumed the wakeup that another one needs
		return err
	}
	if p.end && !s.responseEnded && s.sendError() == nil {
		c.queueHeaders(s, p.trailers, true)
	}
	switch p.when {
	case writeNow:
		c.flush(s)
	case writeAfterYield:
		c.flushLater(s)
	}
	return c.err
}

// sendError returns the reason why the stream cannot send anything, or nil. The caller holds mu.
func (s *stream) sendError() error {
	switch {
	case s.err != nil:
		return s.err
	case s.conn.err != nil:
		return s.conn.err
	case s.expiryReason != nil:
		return s.expiryReason
	case s.responseEnded:
		return errResponseEnded
	}
	return nil
}

// sendFields queues the header fields of a part, once the queue has space. The caller holds mu.
func (s *stream) sendFields(p *part) error {
	c := s.conn
	for c.queue.size-c.queue.extra > maxPending && s.sendError() == nil {
		if err := c.acquireToken(s); err != nil {
			return err
		}
		if c.queue.size > 0 {
			c.writeQueueAndData(s, nil, false) // passing the token on would free no space
		}
		c.releaseToken(s)
	}
	if err := s.sendError(); err != nil || p.fields == nil {
		return err
	}
	c.queueHeaders(s, p.fields, p.end && len(p.data) == 0 && p.trailers == nil)
	return nil
}

// sendData sends the data of a part. The caller holds mu, but not the token.
func (s *stream) sendData(p *part) error {
	c := s.conn
	end := p.end && p.trailers == nil // the last DATA frame ends the stream
	for len(p.data) > 0 || end && !s.responseEnded {
		if err := s.sendError(); err != nil {
			return err
		}
		n := int(max(0, min(int64(len(p.data)), s.sendWindow, c.sendWindow)))
		switch {
		case len(p.data) == 0, n > 0 && n <= maxQueuedData && c.reserveQueueSpace(n):
			c.queueData(s, p.data[:n], end && n == len(p.data))
			p.data = p.data[n:]
		case n > 0:
			if err := s.sendLarge(p, end); err != nil {
				return err
			}
		default:
			c.flush(s) // the client opens its window only after it has received data
			if err := s.waitForWindows(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendLarge acquires the token and writes data without queueing it. It stops when all is written, a
// window is used up, or another stream waits for the token. The caller holds mu.
func (s *stream) sendLarge(p *part, end bool) error {
	c := s.conn
	if err := c.acquireToken(s); err != nil {
		return err
	}
	for s.sendError() == nil && s.sendWindow > 0 && c.sendWindow > 0 {
		n := int(min(int64(len(p.data)), s.sendWindow, c.sendWindow, quantum))
		data := p.data[:n]
		p.data = p.data[n:]
		c.writeQueueAndData(s, data, end && len(p.data) == 0)
		if len(p.data) == 0 || len(c.waitingForToken) > 0 {
			break
		}
	}
	c.releaseToken(s)
	return nil
}

// waitForWindows blocks until both send windows, of the stream and of the connection, are open, or
// the stream cannot send any more. The caller holds mu.
func (s *stream) waitForWindows() error {
	c := s.conn
	queued := false // s was added to c.waitingForConnWindow
	for s.sendError() == nil && (s.sendWindow <= 0 || c.sendWindow <= 0) {
		if s.sendWindow <= 0 {
			c.wakeForConnWindow() // because this stream cannot use the connection window
			s.startStallTimer()
		} else {
			s.stopStallTimer()
			if !slices.Contains(c.waitingForConnWindow, s) {
				if len(c.waitingForConnWindow) == 0 {
					c.startProgressTimeout()
				}
				c.waitingForConnWindow = append(c.waitingForConnWindow, s)
				queued = true
			}
		}
		s.wait()
	}
	s.stopStallTimer()
	if i := slices.Index(c.waitingForConnWindow, s); queued && i >= 0 {
		c.waitingForConnWindow = slices.Delete(c.waitingForConnWindow, i, i+1)
	}
	err := s.sendError()
	if err != nil {
		c.wakeForConnWindow()
	}
	return err
}

// wakeForConnWindow wakes the stream that has waited longest for the connection window, if the
// window is open. A stream that has sent its data wakes the next one. The caller holds mu.
func (c *conn) wakeForConnWindow() {
	if c.sendWindow <= 0 || len(c.waitingForConnWindow) == 0 {
		return
	}
	first := c.waitingForConnWindow[0]
	c.waitingForConnWindow = slices.Delete(c.waitingForConnWindow, 0, 1)
	first.signal()
}

// countSent subtracts n bytes from both send windows. The caller holds mu.
func (c *conn) countSent(s *stream, n int, end bool) {
	s.sendWindow -= int64(n)
	c.sendWindow -= int64(n)
	c.queuedDataFrames += (n + largestFrame - 1) / largestFrame
	c.wakeForConnWindow()
	if end {
		c.markResponseEnded(s)
	}
}

// markResponseEnded records that the end of the response is queued or being written. The caller
// holds mu.
func (c *conn) markResponseEnded(s *stream) {
	s.responseEnded = true
	c.closeFuncs = append(c.closeFuncs, s.onClose...)
	s.onClose = nil
	if s.requestEnded {
		c.closeStream(s, nil)
	}
}

// queueData queues a DATA frame that fits into the windows. The caller holds mu.
func (c *conn) queueData(s *stream, p []byte, end bool) {
	c.queue.append(appendFrameHeader(c.scratch[:0], len(p), http2.FrameData, endFlag(end), s.id))
	c.queue.append(p)
	c.countSent(s, len(p), end)
}

// endFlag returns END_STREAM for the last frame of a response.
func endFlag(end bool) http2.Flags {
	if end {
		return http2.FlagDataEndStream // HEADERS use the same bit
	}
	return 0
}

// queueHeaders queues the frames of a header block. The caller holds mu.
func (c *conn) queueHeaders(s *stream, fields []hpack.HeaderField, end bool) {
	for _, f := range fields {
		_ = c.headerEncoder.WriteField(f) // writes to memory
	}
	block := c.encodedHeaders.Bytes()
	kind, flags := http2.FrameHeaders, endFlag(end)
	for {
		n := min(len(block), largestFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders // CONTINUATION uses the same bit
		}
		c.queue.append(appendFrameHeader(c.scratch[:0], n, kind, flags, s.id))
		c.queue.append(block[:n])
		block = block[n:]
		if len(block) == 0 {
			break
		}
		kind, flags = http2.FrameContinuation, 0
	}
	c.encodedHeaders.Reset()
	if c.encodedHeaders.Cap() > largestFrame {
		c.encodedHeaders = bytes.Buffer{}
	}
	if end {
		c.markResponseEnded(s)
	}
}

// maxSettings is the largest number of settings in a frame.
const maxSettings = 100

// streamsPerFrame is the number of open streams for which a SETTINGS frame counts as one more
// control frame, because it may change the window of each stream.
const streamsPerFrame = 8

// handleSettings applies and acknowledges the SETTINGS of the client. It ignores
// SETTINGS_MAX_FRAME_SIZE, because no frame is larger than the smallest value of that setting.
func (c *conn) handleSettings(h frameHeader, p []byte) error {
	switch {
	case h.streamID != 0:
		return newConnError(http2.ErrCodeProtocol, "SETTINGS on a stream")
	case h.has(http2.FlagSettingsAck) && len(p) > 0, len(p)%6 != 0:
		return newConnError(http2.ErrCodeFrameSize, "SETTINGS of invalid size")
	case h.has(http2.FlagSettingsAck):
		return nil
	case len(p) > 6*maxSettings:
		return newConnError(http2.ErrCodeProtocol, "too many settings")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receivedControl += len(c.streams) / streamsPerFrame
	window := int64(-1)
	for ; len(p) > 0; p = p[6:] {
		s := http2.Setting{ID: http2.SettingID(binary.BigEndian.Uint16(p)), Val: binary.BigEndian.Uint32(p[2:])}
		if err := s.Valid(); err != nil {
			if code, ok := err.(http2.ConnectionError); ok {
				return newConnError(http2.ErrCode(code), s.String())
			}
			return newConnError(http2.ErrCodeProtocol, s.String())
		}
		switch s.ID {
		case http2.SettingHeaderTableSize:
			c.headerEncoder.SetMaxDynamicTableSize(s.Val)
		case http2.SettingInitialWindowSize:
			window = int64(s.Val)
		}
	}
	if err := c.setInitialWindow(window); err != nil {
		return err
	}
	c.queue.append(appendFrameHeader(c.scratch[:0], 0, http2.FrameSettings, http2.FlagSettingsAck, 0))
	return nil
}

// setInitialWindow sets the initial send window of streams and adjusts open streams; -1 changes
// nothing. The caller holds mu.
func (c *conn) setInitialWindow(n int64) error {
	if n < 0 || n == c.initialSendWindow {
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

// priorityDependency returns the stream dependency in the first 4 bytes of p. The highest bit is
// the exclusive flag.
func priorityDependency(p []byte) uint32 { return binary.BigEndian.Uint32(p) &^ (1 << 31) }

// isForbiddenCipher reports whether HTTP/2 forbids the TLS state: anything below TLS 1.2, and TLS
// 1.2 without ephemeral keys and authenticated encryption (RFC 9113, "Prohibited TLS 1.2 Cipher
// Suites").
func isForbiddenCipher(s *tls.ConnectionState) bool {
	if s.Version >= tls.VersionTLS13 {
		return false
	}
	switch s.CipherSuite {
	case tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
		return s.Version < tls.VersionTLS12
	}
	return true
}
