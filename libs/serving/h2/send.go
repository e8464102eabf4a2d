package h2

import (
	"bytes"
	"slices"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// part is what a handler sends at a time. Whatever is set of it goes, in this order.
type part struct {
	fields   []hpack.HeaderField // of the answer
	data     []byte
	trailers []hpack.HeaderField
	end      bool // of the stream
	when     urgency
}

// urgency tells when a part leaves.
type urgency int

const (
	// now is as soon as nobody else writes.
	now urgency = iota
	// soon lets the other streams of the connection go first, so that what they send at the
	// same time leaves together.
	soon
	// later is with the next part.
	later
)

// send sends a part, and returns when it is written or pending: data may be used again then.
func (s *stream) send(p part) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.sendFields(&p); err != nil {
		return err
	}
	if err := s.sendData(&p); err != nil {
		c.wakeBlocked() // it may have been woken in the place of another
		return err
	}
	if p.end && !s.sent && s.failed() == nil {
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

// failed is why nothing can be sent. The caller holds mu.
func (s *stream) failed() error {
	switch {
	case s.err != nil:
		return s.err
	case s.conn.err != nil:
		return s.conn.err
	case s.expired != nil:
		return s.expired
	case s.sent:
		return errEnded
	}
	return nil
}

// sendFields sends the fields of a part, once there is room. The caller holds mu.
func (s *stream) sendFields(p *part) error {
	c := s.conn
	for c.queue.size-c.queue.extra > mostPending && s.failed() == nil {
		if err := c.acquire(s); err != nil {
			return err
		}
		if c.queue.size > 0 {
			c.write(s, nil, false) // to pass the token on would make no room
		}
		c.release(s)
	}
	if err := s.failed(); err != nil || p.fields == nil {
		return err
	}
	c.appendHeaders(s, p.fields, p.end && len(p.data) == 0 && p.trailers == nil)
	return nil
}

// sendData sends the data of a part. The caller holds mu, and not the token.
func (s *stream) sendData(p *part) error {
	c, end := s.conn, p.end && p.trailers == nil
	for len(p.data) > 0 || end && !s.sent {
		if err := s.failed(); err != nil {
			return err
		}
		n := int(max(0, min(int64(len(p.data)), s.out, c.out)))
		switch {
		case len(p.data) == 0, n > 0 && n <= short && c.roomFor(n):
			c.appendData(s, p.data[:n], end && n == len(p.data))
			p.data = p.data[n:]
		case n > 0:
			if err := s.sendLarge(p, end); err != nil {
				return err
			}
		default:
			c.flush(s) // or the client makes no room
			if err := s.block(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendLarge writes data until there are none, the windows are used up, or it is the turn of
// others. The caller holds mu.
func (s *stream) sendLarge(p *part, end bool) error {
	c := s.conn
	if err := c.acquire(s); err != nil {
		return err
	}
	for s.failed() == nil && s.out > 0 && c.out > 0 {
		n := int(min(int64(len(p.data)), s.out, c.out, quantum))
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

// block waits until the windows allow something. The caller holds mu.
func (s *stream) block() error {
	c, queued := s.conn, false
	for s.failed() == nil && (s.out <= 0 || c.out <= 0) {
		if s.out <= 0 {
			c.wakeBlocked() // in place of this one
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
	err := s.failed()
	if err != nil {
		c.wakeBlocked()
	}
	return err
}

// wakeBlocked wakes who waits longest for the window of the connection, if it is open: each
// wakes the next one. The caller holds mu.
func (c *conn) wakeBlocked() {
	if c.out <= 0 || len(c.blocked) == 0 {
		return
	}
	first := c.blocked[0]
	c.blocked = slices.Delete(c.blocked, 0, 1)
	first.signal()
}

// sent counts data that are queued or being written. The caller holds mu.
func (c *conn) sent(s *stream, n int, end bool) {
	s.out -= int64(n)
	c.out -= int64(n)
	c.frames += (n + largestFrame - 1) / largestFrame
	c.wakeBlocked()
	if end {
		c.sendEnds(s)
	}
}

// sendEnds tells that the end of a stream is pending or being written. The caller holds mu.
func (c *conn) sendEnds(s *stream) {
	s.sent = true
	c.closing = append(c.closing, s.onClose...)
	if s.onClose = nil; s.got {
		c.close(s, nil)
	}
}

// appendData appends a frame of data, for which the windows have room. The caller holds mu.
func (c *conn) appendData(s *stream, p []byte, end bool) {
	c.queue.put(appendHead(c.scratch[:0], len(p), http2.FrameData, endFlag(end), s.id))
	c.queue.put(p)
	c.sent(s, len(p), end)
}

func endFlag(end bool) http2.Flags {
	if end {
		return http2.FlagDataEndStream // the same bit in headers
	}
	return 0
}

// appendHeaders appends the frames of header fields. The caller holds mu.
func (c *conn) appendHeaders(s *stream, fields []hpack.HeaderField, end bool) {
	for _, f := range fields {
		_ = c.encoder.WriteField(f) // to memory
	}
	block := c.encoded.Bytes()
	kind, flags := http2.FrameHeaders, endFlag(end)
	for {
		n := min(len(block), largestFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders // the same bit in continuations
		}
		c.queue.put(appendHead(c.scratch[:0], n, kind, flags, s.id))
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
		c.sendEnds(s)
	}
}
