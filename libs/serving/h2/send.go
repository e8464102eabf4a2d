package h2

import (
	"bytes"
	"runtime"
	"slices"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// short is the size of data in bytes up to which they are put beside what others have
	// pending, instead of being written by their own handler.
	short = 16 << 10
	// quantum is how many bytes of a large answer are written until others go first.
	quantum = 128 << 10
	// rounds is how often a handler writes what others have pending, before a goroutine does.
	rounds = 4
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
	case s.sent:
		return errEnded
	}
	return nil
}

// sendFields sends the fields of a part, once there is room. The caller holds mu.
func (s *stream) sendFields(p *part) error {
	c := s.conn
	for c.pending.size-c.pending.extra > mostPending && s.failed() == nil {
		if err := c.acquire(s); err != nil {
			return err
		}
		if c.pending.size > 0 {
			c.write(s, nil, false) // to hand the pen on would make no room
		}
		c.release(s)
	}
	if err := s.failed(); err != nil || p.fields == nil {
		return err
	}
	c.appendHeaders(s, p.fields, p.end && len(p.data) == 0 && p.trailers == nil)
	return nil
}

// sendData sends the data of a part. The caller holds mu, and has not the pen.
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
		if len(p.data) == 0 || len(c.line) > 0 {
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
		} else if !slices.Contains(c.blocked, s) {
			c.blocked = append(c.blocked, s)
			queued = true
		}
		s.wait()
	}
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

// took counts data that are sent. The caller holds mu.
func (c *conn) took(s *stream, n int, end bool) {
	s.out -= int64(n)
	c.out -= int64(n)
	c.wakeBlocked()
	if end {
		c.sendEnds(s)
	}
}

// sendEnds tells that the end of a stream is pending or being written. The caller holds mu.
func (c *conn) sendEnds(s *stream) {
	if s.sent = true; s.got {
		c.close(s, nil)
	}
}

// appendData appends a frame of data, for which the windows have room. The caller holds mu.
func (c *conn) appendData(s *stream, p []byte, end bool) {
	c.pending.put(appendHead(c.scratch[:0], len(p), http2.FrameData, endFlag(end), s.id))
	c.pending.put(p)
	c.took(s, len(p), end)
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
		c.pending.put(appendHead(c.scratch[:0], n, kind, flags, s.id))
		c.pending.put(block[:n])
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

// flush writes what is pending, unless somebody writes. The caller holds mu.
func (c *conn) flush(s *stream) {
	if c.pending.size > 0 && !c.held {
		c.held, c.yielding = true, false
		c.release(s)
	}
}

// flushSoon is flush for who must not wait. The caller holds mu.
func (c *conn) flushSoon() {
	if c.pending.size > 0 && !c.held {
		c.held, c.yielding = true, false
		go c.drain()
	}
}

// flushLater is flush after others have had time to add theirs. The caller holds mu.
func (c *conn) flushLater(s *stream) {
	if c.pending.size == 0 || c.held || c.yielding {
		return
	}
	c.yielding = true
	c.mu.Unlock()
	runtime.Gosched()
	c.mu.Lock()
	if c.yielding { // else somebody else does it
		c.flush(s)
	}
}

// drain writes what is pending for nobody. It has the pen.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(nil)
}

// acquire waits for the pen. The caller holds mu.
func (c *conn) acquire(s *stream) error {
	if err := s.failed(); err != nil {
		return err
	}
	if !c.held {
		c.held, c.yielding = true, false
		return nil
	}
	c.line = append(c.line, s)
	for !s.handed && s.failed() == nil {
		s.wait()
	}
	err := s.failed()
	switch i := slices.Index(c.line, s); {
	case s.handed:
		if s.handed = false; err != nil {
			c.release(s)
		}
	case i >= 0:
		c.line = slices.Delete(c.line, i, i+1)
	}
	return err
}

// release gives the pen up once nothing is pending, or to who waits for it. The caller holds mu;
// s is its stream, nil for none.
func (c *conn) release(s *stream) {
	for i := 0; c.err == nil && c.pending.size > 0 && len(c.line) == 0; i++ {
		if s != nil && (i == rounds || i > 0 && c.pending.size > mostPending) {
			go c.drain()
			return
		}
		c.write(s, nil, false)
	}
	if len(c.line) == 0 {
		c.held = false
		c.closeWhenDone()
		return
	}
	next := c.line[0]
	c.line = slices.Delete(c.line, 0, 1)
	next.handed = true
	next.signal()
}

// write writes what is pending, and data of s, for which the windows have room. The caller has
// the pen, and holds mu, which is not held meanwhile.
func (c *conn) write(s *stream, p []byte, end bool) {
	if s != nil && len(p) > 0 {
		c.took(s, len(p), end)
	}
	if c.err != nil {
		return
	}
	pending, resets := c.pending, c.resetting
	c.pending, c.resetting = backlog{records: c.spare}, 0
	c.spare, c.flying = nil, pending.extra
	c.room.Broadcast()
	c.extend()
	var id uint32
	if s != nil && len(p) > 0 {
		s.writing, id = true, s.id
	}
	c.mu.Unlock()
	err := c.emit(pending.records, id, p, end)
	c.wire.Sent(resets, pending.size+len(p))
	c.server.extra.give(pending.extra)
	records := pending.free()
	c.mu.Lock()
	c.spare, c.flying = records, 0
	if s != nil {
		s.writing = false
	}
	if err != nil {
		c.fail(err)
	}
}

// emit writes frames, and data as frames: together as much as a record has, and all records
// together.
func (c *conn) emit(records []*[]byte, id uint32, p []byte, end bool) error {
	if len(p) == 0 && len(records) == 1 {
		_, err := c.wire.Write(*records[0])
		return err
	}
	return c.hold(func() error {
		var last *[]byte // to which data are added
		for i, r := range records {
			if i == len(records)-1 && len(p) > 0 && len(*r) <= together/2 {
				last = r
				break
			}
			if err := c.record(*r); err != nil {
				return err
			}
		}
		if last == nil && len(p) > 0 {
			last = pieces.Get().(*[]byte)
			defer pieces.Put(last)
		}
		for len(p) > 0 {
			n := min(len(p), together-len(*last)-headLength)
			*last = appendHead(*last, n, http2.FrameData, endFlag(end && n == len(p)), id)
			*last = append(*last, p[:n]...)
			err := c.record(*last)
			*last = (*last)[:0]
			if err != nil {
				return err
			}
			p = p[n:]
		}
		return nil
	})
}

// record writes one of several records, for each of which the client has the time of a write.
func (c *conn) record(p []byte) error {
	if time.Until(c.until) < c.config.WriteTimeout/2 {
		c.mu.Lock()
		c.extend()
		c.mu.Unlock()
	}
	_, err := c.wire.Write(p)
	return err
}

// extend gives what is written from now on its time, for some writes at once: a timer is dear.
// The caller has the pen, and holds mu.
func (c *conn) extend() {
	t := time.Now()
	if c.err != nil || c.until.Sub(t) > c.config.WriteTimeout*7/8 {
		return
	}
	if c.until.IsZero() {
		c.wakeAfter(c.config.WriteTimeout / 2) // see rest
	}
	c.until = t.Add(c.config.WriteTimeout)
	_ = c.wire.SetWriteDeadline(c.until) // or the write fails
}

// rest lifts the deadline of the wire when nothing is being written: TLS may have to answer
// something by itself later. It returns when to ask again, 0 for never. The caller holds mu.
func (c *conn) rest() time.Duration {
	switch {
	case c.until.IsZero():
		return 0
	case c.held || time.Until(c.until) > c.config.WriteTimeout/2:
		return c.config.WriteTimeout / 4
	}
	c.until = time.Time{}
	_ = c.wire.SetWriteDeadline(time.Time{})
	return 0
}

// hold has what is written leave together.
func (c *conn) hold(write func() error) error {
	c.wire.Hold()
	err := write()
	if failed := c.wire.Release(); err == nil {
		err = failed
	}
	return err
}
