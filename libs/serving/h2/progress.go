package h2

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/net/http2"
)

// ErrStalled is the error of a response whose client takes nothing of it.
var ErrStalled = fmt.Errorf("the client does not read the response: %w", os.ErrDeadlineExceeded)

const (
	// linger is how long a connection is kept after a GOAWAY once the client has all that was
	// sent, so that the client can close it.
	linger = time.Second
	// checks is how often a timeout is looked at before it is over.
	checks = 4
	// pingSize is what a PING and its TLS record take of the connection at most, in bytes.
	pingSize = 64
	// never is later than any check.
	never = time.Duration(1<<63 - 1)
)

// delivery is what the client has acknowledged. All times are since conn.born.
type delivery struct {
	delivered  int64         // bytes
	grew       time.Duration // when delivered did last
	waitsSince time.Duration // since when something waits to be delivered
	done       time.Duration // since when all was delivered of a connection that is leaving
	pinged     time.Duration // when a PING was sent; 0 when the client has shown a sign of life since
	pingMark   int64         // delivered at that time
	due        time.Duration // when tick is called; 0 while it runs
}

// observe looks at what was delivered, and returns how many bytes are outstanding. The caller
// holds mu.
func (c *conn) observe(now time.Duration) int64 {
	delivered, outstanding := c.wire.Delivered()
	if delivered > c.delivered {
		c.delivered, c.grew = delivered, now
	}
	return outstanding
}

// tick checks the timeouts of the connection.
func (c *conn) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	now := c.now()
	outstanding := c.observe(now)
	c.due = 0
	next := min(c.checkProgress(now, outstanding), c.checkLife(now), c.checkIdle(now, outstanding))
	if c.err == nil {
		c.wakeAfter(max(next, time.Millisecond))
	}
}

// wakeAfter has tick be called after a while, if it is not before. The caller holds mu.
func (c *conn) wakeAfter(d time.Duration) {
	if at := c.now() + d; c.due == 0 || at < c.due {
		c.due = at
		c.timer.Reset(d)
	}
}

// startWaiting starts the clock of checkProgress. The caller holds mu.
func (c *conn) startWaiting() {
	c.waitsSince = c.now()
	c.wakeAfter(c.config.WriteTimeout / checks)
}

// checkProgress fails the connection when something waited to be delivered for the whole
// WriteTimeout, and nothing was. Time in which the server itself had nothing ready for the
// network does not count. It returns when to check again. The caller holds mu.
func (c *conn) checkProgress(now time.Duration, outstanding int64) time.Duration {
	interval := c.config.WriteTimeout / checks
	if !(outstanding > 0 && (c.writing || c.leaving)) && !(c.out <= 0 && len(c.blocked) > 0) {
		if c.waitsSince = now; c.writing {
			return interval
		}
		return never
	}
	left := c.config.WriteTimeout - (now - max(c.waitsSince, c.grew))
	if left <= 0 {
		c.fail(ErrStalled)
	}
	return min(left, interval)
}

// checkLife sends a PING to a silent client, and fails the connection when neither a frame came
// within PingTimeout nor anything but the PING was acknowledged. It returns when to check again.
// The caller holds mu.
func (c *conn) checkLife(now time.Duration) time.Duration {
	silent := now - time.Duration(c.heard.Load())
	if c.pinged > 0 && silent < now-c.pinged {
		c.pinged = 0
	}
	switch {
	case c.pinged > 0 && now-c.pinged < c.config.PingTimeout:
		return c.config.PingTimeout - (now - c.pinged)
	case c.pinged > 0 && c.delivered-c.pingMark > pingSize: // the client is downloading
		c.pinged = 0
		c.heard.Store(int64(now))
		return c.config.PingAfter
	case c.pinged > 0:
		c.fail(errSilent)
	case silent >= c.config.PingAfter:
		c.pinged, c.pingMark = now, c.delivered
		c.queue.put(appendPing(c.scratch[:0], 0, make([]byte, 8)))
		c.flushAsync()
		return c.config.PingTimeout
	}
	return c.config.PingAfter - silent
}

// checkIdle closes a connection that is leaving once its client has had time to read everything,
// and has one leave that was without requests for the IdleTimeout. It returns when to check again.
// The caller holds mu.
func (c *conn) checkIdle(now time.Duration, outstanding int64) time.Duration {
	switch {
	case len(c.streams) > 0 || c.writing || c.queue.size > 0:
	case c.leaving && outstanding > 0:
		c.done = now
		return linger / checks
	case c.leaving && now-c.done >= linger:
		c.fail(errGone)
	case c.leaving:
		return linger - (now - c.done)
	case c.running > 0:
	case now-c.idle >= c.config.IdleTimeout:
		c.leave(http2.ErrCodeNo)
		return linger
	default:
		return c.config.IdleTimeout - (now - c.idle)
	}
	return never
}

// closeWhenDone has checkIdle close a connection that is leaving and has nothing more to send. The
// caller holds mu.
func (c *conn) closeWhenDone() {
	if c.leaving && len(c.streams) == 0 && !c.writing && c.queue.size == 0 && c.err == nil {
		c.waitsSince = c.now()
		c.done = c.waitsSince
		c.wakeAfter(linger / checks)
	}
}

// stall watches a stream that waits for its own window. Guarded by conn.mu.
type stall struct {
	timeout time.Duration
	timer   *time.Timer
	on      bool
	since   time.Time // when the client was first seen to have all that was sent; zero before
	write   uint64    // the write with the last of the stream's data
	mark    int64     // bytes of the connection up to its end; 0 until they are known
}

// watchWindow starts the clock of a stream whose window is closed. The caller holds mu.
func (s *stream) watchWindow() {
	c, w := s.conn, &s.stall
	if w.on || w.timeout <= 0 {
		return
	}
	w.on, w.since, w.mark, w.write = true, time.Time{}, 0, c.writes
	if c.queue.size > 0 {
		w.write++
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(w.timeout/checks, s.checkWindow)
	} else {
		w.timer.Reset(w.timeout / checks)
	}
}

// unwatchWindow stops it. The caller holds mu.
func (s *stream) unwatchWindow() {
	if s.stall.on {
		s.stall.on = false
		s.stall.timer.Stop()
	}
}

// checkWindow resets the stream when its window was closed for the whole timeout. The clock starts
// once the client has all that was sent of the stream: before, it cannot open the window.
func (s *stream) checkWindow() {
	c, w := s.conn, &s.stall
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.on || s.failed() != nil {
		return
	}
	if w.since.IsZero() && s.isDelivered() {
		w.since = time.Now()
	}
	left := w.timeout
	if !w.since.IsZero() {
		left -= time.Since(w.since)
	}
	if left <= 0 {
		c.expire(s, ErrStalled)
		return
	}
	w.timer.Reset(min(left, w.timeout/checks))
}

// isDelivered reports whether the client has acknowledged all that was sent of the stream. The
// caller holds mu.
func (s *stream) isDelivered() bool {
	c, w := s.conn, &s.stall
	if c.written < w.write {
		return false
	}
	outstanding := c.observe(c.now())
	if w.mark == 0 {
		w.mark = c.delivered + outstanding
	}
	return c.delivered >= w.mark
}

// setStallTimeout changes the timeout of the stream's window; 0 is none.
func (s *stream) setStallTimeout(d time.Duration) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	on := s.stall.on
	s.unwatchWindow()
	if s.stall.timeout = d; on {
		s.watchWindow()
	}
}

// deadline is when a response has to have been sent. Guarded by conn.mu.
type deadline struct {
	at     time.Time // zero for none
	armed  time.Time // when the timer fires; zero when it does not
	timer  *time.Timer
	forced bool // set by the handler
	// What was delivered of the connection when the deadline was put off last.
	delivered int64
	putOff    bool
}

// setDeadline bounds what is sent.
func (s *stream) setDeadline(t time.Time) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.deadline.at, s.deadline.forced = t, true
	s.checkDeadline()
}

// checkDeadline ends the stream if its deadline has passed, and has a timer do it otherwise. The
// caller holds mu.
func (s *stream) checkDeadline() {
	d := &s.deadline
	if d.at.IsZero() || s.ended {
		return
	}
	left := time.Until(d.at)
	if left <= 0 && !d.forced && s.keepsPace() {
		left = s.conn.config.WriteTimeout
		d.at = time.Now().Add(left)
	}
	switch {
	case left <= 0:
		s.conn.expire(s, os.ErrDeadlineExceeded)
	case !d.armed.IsZero() && !d.at.Before(d.armed): // which looks again then
	case d.timer == nil:
		d.armed, d.timer = d.at, time.AfterFunc(left, s.deadlinePassed)
	default:
		d.armed = d.at
		d.timer.Reset(left)
	}
}

func (s *stream) deadlinePassed() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.deadline.armed = time.Time{}
	s.checkDeadline()
}

// keepsPace reports whether the connection has taken MinRate since the deadline of the response was
// put off last. The first time there is nothing to compare with. The caller holds mu.
func (s *stream) keepsPace() bool {
	c, d := s.conn, &s.deadline
	c.observe(c.now())
	took := c.delivered - d.delivered
	first := !d.putOff
	d.putOff, d.delivered = true, c.delivered
	return s.begun.Load() && (first || took >= max(1, int64(float64(c.config.MinRate)*c.config.WriteTimeout.Seconds())))
}

// expire resets a stream whose time is over, once a write of its data has returned: half a frame
// cannot be taken back. The connection goes on. The caller holds mu.
func (c *conn) expire(s *stream, reason error) {
	switch {
	case c.streams[s.id] != s || s.sent:
	case s.writing:
		s.expired = reason
	default:
		c.resetFor(s.id, http2.ErrCodeInternal, reason)
		c.flushAsync()
	}
}
