package h2

import (
	"bytes"
	"slices"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// part is a part of a response: header fields, data and trailers, in this order. Each is optional.
type part struct {
	fields   []hpack.HeaderField
	data     []byte
	trailers []hpack.HeaderField
	end      bool // the part ends the stream
	when     urgency
}

// endStream is the end argument of queueHeaders for trailers, which always end the stream.
const endStream = true

// urgency says when a part is written to the wire.
type urgency int

const (
	// writeNow writes as soon as the write token (schedule.go) is free.
	writeNow urgency = iota
	// writeAfterYield yields to the other streams of the connection first, so that their data
	// leaves in the same write.
	writeAfterYield
	// writeWithNextPart queues the part, which is then written together with the next one.
	writeWithNextPart
)

// send sends a part. It blocks until the part is written or queued. After that the caller may reuse
// p.data. It returns an error if the stream or the connection cannot send any more.
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
		c.queueHeaders(s, p.trailers, endStream)
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

// sendFields waits until the queue has space, and then queues the header fields of a part, if any.
// The caller holds mu.
func (s *stream) sendFields(p *part) error {
	c := s.conn
	for c.queue.size-c.queue.extra > maxPending && s.sendError() == nil {
		if err := c.acquireToken(s); err != nil {
			return err
		}
		if c.queue.size > 0 {
			c.writeQueue() // here, because passing the token on would free no space
		}
		c.releaseToken(s)
	}
	if err := s.sendError(); err != nil || p.fields == nil {
		return err
	}
	onlyHeaders := len(p.data) == 0 && p.trailers == nil
	c.queueHeaders(s, p.fields, p.end && onlyHeaders)
	return nil
}

// sendData sends the data of a part. It copies short data to the queue and writes large data
// itself. The caller holds mu, but not the token.
func (s *stream) sendData(p *part) error {
	c := s.conn
	end := p.end && p.trailers == nil // the last DATA frame ends the stream
	for len(p.data) > 0 || end && !s.responseEnded {
		if err := s.sendError(); err != nil {
			return err
		}
		n := int(max(0, min(int64(len(p.data)), s.sendWindow, c.sendWindow))) // bytes that may be sent now
		isShort := n > 0 && n <= maxQueuedData
		switch {
		case len(p.data) == 0, isShort && c.reserveQueueSpace(n):
			// Without data, an empty DATA frame ends the stream. The windows do not apply to it.
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
	wasAdded := false // s was added to c.waitingForConnWindow
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
				wasAdded = true
			}
		}
		s.wait()
	}
	s.stopStallTimer()
	if i := slices.Index(c.waitingForConnWindow, s); wasAdded && i >= 0 {
		c.waitingForConnWindow = slices.Delete(c.waitingForConnWindow, i, i+1)
	}
	return s.sendError()
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

// countSent records that n bytes of data are queued or being written: it subtracts them from both
// send windows. end marks the last data of the response. The caller holds mu.
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

// endFlag returns the END_STREAM flag if end is true, and no flag otherwise.
func endFlag(end bool) http2.Flags {
	if end {
		return http2.FlagDataEndStream // HEADERS use the same bit
	}
	return 0
}

// queueHeaders encodes the fields and queues the HEADERS frame, followed by CONTINUATION frames if
// the block is larger than one frame. end sets END_STREAM. The caller holds mu.
func (c *conn) queueHeaders(s *stream, fields []hpack.HeaderField, end bool) {
	for _, f := range fields {
		_ = c.headerEncoder.WriteField(f) // writes to c.encodedHeaders and cannot fail
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
