package h2

import (
	"bytes"
	"slices"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// part is what a handler sends in one call. Its fields are sent in this order.
type part struct {
	fields   []hpack.HeaderField // header fields of the response
	data     []byte
	trailers []hpack.HeaderField
	end      bool // of the stream
	when     urgency
}

// urgency is when a part is written.
type urgency int

const (
	// now writes as soon as the token is free.
	now urgency = iota
	// soon yields to the other streams of the connection first, so that their data leaves in the
	// same write.
	soon
	// later writes with the next part.
	later
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
		c.wakeBlocked() // the stream may have consumed a wakeup
		return err
	}
	if p.end && !s.responseEnded && s.sendError() == nil {
		c.appendHeaders(s, p.trailers, true)
	}
	switch p.when {
	case now:
		c.flush(s)
	case soon:
		c.flushLater(s)
	}
	return c.err
}

// sendError returns why nothing can be sent, or nil. The caller holds mu.
func (s *stream) sendError() error {
	switch {
	case s.err != nil:
		return s.err
	case s.conn.err != nil:
		return s.conn.err
	case s.expired != nil:
		return s.expired
	case s.responseEnded:
		return errEnded
	}
	return nil
}

// sendFields queues the header fields of a part, once the queue has space. The caller holds mu.
func (s *stream) sendFields(p *part) error {
	c := s.conn
	for c.queue.size-c.queue.extra > maxPending && s.sendError() == nil {
		if err := c.acquire(s); err != nil {
			return err
		}
		if c.queue.size > 0 {
			c.write(s, nil, false) // passing the token on would free no space
		}
		c.release(s)
	}
	if err := s.sendError(); err != nil || p.fields == nil {
		return err
	}
	c.appendHeaders(s, p.fields, p.end && len(p.data) == 0 && p.trailers == nil)
	return nil
}

// sendData sends the data of a part. The caller holds mu, but not the token.
func (s *stream) sendData(p *part) error {
	c, end := s.conn, p.end && p.trailers == nil
	for len(p.data) > 0 || end && !s.responseEnded {
		if err := s.sendError(); err != nil {
			return err
		}
		n := int(max(0, min(int64(len(p.data)), s.sendWindow, c.sendWindow)))
		switch {
		case len(p.data) == 0, n > 0 && n <= maxQueuedData && c.canQueue(n):
			c.appendData(s, p.data[:n], end && n == len(p.data))
			p.data = p.data[n:]
		case n > 0:
			if err := s.sendLarge(p, end); err != nil {
				return err
			}
		default:
			c.flush(s) // the client opens its window only after it has received data
			if err := s.block(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendLarge writes data until all is written, the windows are used up, or another stream waits for
// the token. The caller holds mu.
func (s *stream) sendLarge(p *part, end bool) error {
	c := s.conn
	if err := c.acquire(s); err != nil {
		return err
	}
	for s.sendError() == nil && s.sendWindow > 0 && c.sendWindow > 0 {
		n := int(min(int64(len(p.data)), s.sendWindow, c.sendWindow, quantum))
		data := p.data[:n]
		p.data = p.data[n:]
		c.write(s, data, end && len(p.data) == 0)
		if len(p.data) == 0 || len(c.writers) > 0 {
			break
		}
	}
	c.release(s)
	return nil
}

// block waits until the windows are open. The caller holds mu.
func (s *stream) block() error {
	c, queued := s.conn, false
	for s.sendError() == nil && (s.sendWindow <= 0 || c.sendWindow <= 0) {
		if s.sendWindow <= 0 {
			c.wakeBlocked() // because this stream cannot use the connection window
			s.watchWindow()
		} else {
			s.unwatchWindow()
			if !slices.Contains(c.blocked, s) {
				if len(c.blocked) == 0 {
					c.startWaiting()
				}
				c.blocked = append(c.blocked, s)
				queued = true
			}
		}
		s.wait()
	}
	s.unwatchWindow()
	if i := slices.Index(c.blocked, s); queued && i >= 0 {
		c.blocked = slices.Delete(c.blocked, i, i+1)
	}
	err := s.sendError()
	if err != nil {
		c.wakeBlocked()
	}
	return err
}

// wakeBlocked wakes the stream that has waited longest for the connection window, if it is open.
// Each stream wakes the next one. The caller holds mu.
func (c *conn) wakeBlocked() {
	if c.sendWindow <= 0 || len(c.blocked) == 0 {
		return
	}
	first := c.blocked[0]
	c.blocked = slices.Delete(c.blocked, 0, 1)
	first.signal()
}

// countSent takes data that is queued or being written from the windows. The caller holds mu.
func (c *conn) countSent(s *stream, n int, end bool) {
	s.sendWindow -= int64(n)
	c.sendWindow -= int64(n)
	c.frames += (n + largestFrame - 1) / largestFrame
	c.wakeBlocked()
	if end {
		c.markResponseEnded(s)
	}
}

// markResponseEnded records that the end of the response is queued or being written. The caller
// holds mu.
func (c *conn) markResponseEnded(s *stream) {
	s.responseEnded = true
	c.closeFuncs = append(c.closeFuncs, s.onClose...)
	if s.onClose = nil; s.requestEnded {
		c.close(s, nil)
	}
}

// appendData queues a DATA frame that fits into the windows. The caller holds mu.
func (c *conn) appendData(s *stream, p []byte, end bool) {
	c.queue.put(appendFrameHeader(c.scratch[:0], len(p), http2.FrameData, endFlag(end), s.id))
	c.queue.put(p)
	c.countSent(s, len(p), end)
}

func endFlag(end bool) http2.Flags {
	if end {
		return http2.FlagDataEndStream // HEADERS use the same bit
	}
	return 0
}

// appendHeaders queues the frames of a header block. The caller holds mu.
func (c *conn) appendHeaders(s *stream, fields []hpack.HeaderField, end bool) {
	for _, f := range fields {
		_ = c.encoder.WriteField(f) // writes to memory
	}
	block := c.encoded.Bytes()
	kind, flags := http2.FrameHeaders, endFlag(end)
	for {
		n := min(len(block), largestFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders // CONTINUATION uses the same bit
		}
		c.queue.put(appendFrameHeader(c.scratch[:0], n, kind, flags, s.id))
		c.queue.put(block[:n])
		if block = block[n:]; len(block) == 0 {
			break
		}
		kind, flags = http2.FrameContinuation, 0
	}
	if c.encoded.Reset(); c.encoded.Cap() > largestFrame {
		c.encoded = bytes.Buffer{}
	}
	if end {
		c.markResponseEnded(s)
	}
}
