package h2

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/net/http2"
)

// ErrStalled is the error of writes to a response that the client does not read.
var ErrStalled = fmt.Errorf("the client does not read the response: %w", os.ErrDeadlineExceeded)

const (
	// linger is how long a connection stays open after a GOAWAY once the client has received
	// everything, so that the client can close it.
	linger = time.Second
	// checksPerTimeout is the number of checks within one timeout.
	checksPerTimeout = 4
	// pingSize is the largest size of a PING in its TLS record, in bytes.
	pingSize = 64
	// never is later than any check.
	never = time.Duration(1<<63 - 1)
)

// delivery tracks what the client has acknowledged. Durations are since conn.started.
type delivery struct {
	delivered      int64         // acknowledged bytes
	grewAt         time.Duration // time of the last growth of delivered
	waitingSince   time.Duration // since when bytes wait to be acknowledged
	deliveredSince time.Duration // since when a leaving connection has everything acknowledged
	pingedAt       time.Duration // when a PING was sent; 0 after a sign of life
	pingMark       int64         // delivered when the PING was sent
	nextTick       time.Duration // when tick is called; 0 while it runs
}

// observe updates delivered, and returns the number of outstanding bytes. The caller holds mu.
func (c *conn) observe(now time.Duration) int64 {
	delivered, outstanding := c.wire.Delivered()
	if delivered > c.delivered {
		c.delivered = delivered
		c.grewAt = now
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
	c.nextTick = 0
	next := min(c.checkProgress(now, outstanding), c.checkLiveness(now), c.checkIdle(now, outstanding))
	if c.err == nil {
		c.wakeAfter(max(next, time.Millisecond))
	}
}

// wakeAfter schedules tick after d, unless it is scheduled earlier. The caller holds mu.
func (c *conn) wakeAfter(d time.Duration) {
	if at := c.now() + d; c.nextTick == 0 || at < c.nextTick {
		c.nextTick = at
		c.timer.Reset(d)
	}
}

// startWaiting starts the timeout of checkProgress. The caller holds mu.
func (c *conn) startWaiting() {
	c.waitingSince = c.now()
	c.wakeAfter(c.config.WriteTimeout / checksPerTimeout)
}

// checkProgress fails the connection if bytes waited to be acknowledged for the whole WriteTimeout
// and none was. Time in which the server had nothing to send does not count. It returns the time
// until the next check. The caller holds mu.
func (c *conn) checkProgress(now time.Duration, outstanding int64) time.Duration {
	interval := c.config.WriteTimeout / checksPerTimeout
	if !(outstanding > 0 && (c.writing || c.leaving)) && !(c.sendWindow <= 0 && len(c.blocked) > 0) {
		c.waitingSince = now
		if c.writing {
			return interval
		}
		return never
	}
	left := c.config.WriteTimeout - (now - max(c.waitingSince, c.grewAt))
	if left <= 0 {
		c.fail(ErrStalled)
	}
	return min(left, interval)
}

// checkLiveness sends a PING to a silent client. It fails the connection if no frame arrived within
// PingTimeout and nothing but the PING was acknowledged. It returns the time until the next check.
// The caller holds mu.
func (c *conn) checkLiveness(now time.Duration) time.Duration {
	silent := now - time.Duration(c.lastRead.Load())
	if c.pingedAt > 0 && silent < now-c.pingedAt {
		c.pingedAt = 0
	}
	switch {
	case c.pingedAt > 0 && now-c.pingedAt < c.config.PingTimeout:
		return c.config.PingTimeout - (now - c.pingedAt)
	case c.pingedAt > 0 && c.delivered-c.pingMark > pingSize: // the client is downloading
		c.pingedAt = 0
		c.lastRead.Store(int64(now))
		return c.config.PingAfter
	case c.pingedAt > 0:
		c.fail(errSilent)
	case silent >= c.config.PingAfter:
		c.pingedAt = now
		c.pingMark = c.delivered
		c.queue.put(appendPing(c.scratch[:0], 0, make([]byte, 8)))
		c.flushAsync()
		return c.config.PingTimeout
	}
	return c.config.PingAfter - silent
}

// checkIdle closes a leaving connection once its client has had time to read everything. It sends a
// GOAWAY on a connection that had no requests for the IdleTimeout. It returns the time until the
// next check. The caller holds mu.
func (c *conn) checkIdle(now time.Duration, outstanding int64) time.Duration {
	switch {
	case len(c.streams) > 0 || c.writing || c.queue.size > 0:
	case c.leaving && outstanding > 0:
		c.deliveredSince = now
		return linger / checksPerTimeout
	case c.leaving && now-c.deliveredSince >= linger:
		c.fail(errGone)
	case c.leaving:
		return linger - (now - c.deliveredSince)
	case c.running > 0:
	case now-c.idle >= c.config.IdleTimeout:
		c.goAwayLocked(http2.ErrCodeNo)
		return linger
	default:
		return c.config.IdleTimeout - (now - c.idle)
	}
	return never
}

// closeWhenDone schedules the close of a leaving connection that has nothing more to send. The
// caller holds mu.
func (c *conn) closeWhenDone() {
	if c.leaving && len(c.streams) == 0 && !c.writing && c.queue.size == 0 && c.err == nil {
		c.waitingSince = c.now()
		c.deliveredSince = c.waitingSince
		c.wakeAfter(linger / checksPerTimeout)
	}
}

// stall tracks a stream that waits for its own window. Guarded by conn.mu.
type stall struct {
	timeout time.Duration
	timer   *time.Timer
	active  bool
	since   time.Time // when the client had acknowledged all that was sent; zero before
	write   uint64    // number of the write with the last of the stream's data
	mark    int64     // connection bytes up to the end of that write; 0 until known
}

// watchWindow starts the stall timeout of a stream whose window is closed. The caller holds mu.
func (s *stream) watchWindow() {
	c, w := s.conn, &s.stall
	if w.active || w.timeout <= 0 {
		return
	}
	w.active = true
	w.since = time.Time{}
	w.mark = 0
	w.write = c.writes
	if c.queue.size > 0 {
		w.write++
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(w.timeout/checksPerTimeout, s.checkWindow)
	} else {
		w.timer.Reset(w.timeout / checksPerTimeout)
	}
}

// unwatchWindow stops the stall timeout. The caller holds mu.
func (s *stream) unwatchWindow() {
	if s.stall.active {
		s.stall.active = false
		s.stall.timer.Stop()
	}
}

// checkWindow resets the stream if its window was closed for the whole timeout. The timeout starts
// when the client has acknowledged all that was sent on the stream. Before that it cannot open the
// window.
func (s *stream) checkWindow() {
	c, w := s.conn, &s.stall
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.active || s.sendError() != nil {
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
	w.timer.Reset(min(left, w.timeout/checksPerTimeout))
}

// isDelivered reports whether the client has acknowledged all that was sent on the stream. The
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

// setStallTimeout changes the stall timeout of the stream; 0 means none.
func (s *stream) setStallTimeout(d time.Duration) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	on := s.stall.active
	s.unwatchWindow()
	s.stall.timeout = d
	if on {
		s.watchWindow()
	}
}

// deadline is the time by which a response must have been sent. Guarded by conn.mu.
type deadline struct {
	at     time.Time // zero for none
	armed  time.Time // when the timer fires; zero if it is not set
	timer  *time.Timer
	forced bool // set by the handler
	// delivered is the value of delivery.delivered when the deadline was last extended.
	delivered int64
	extended  bool
}

// setDeadline sets the write deadline of the handler.
func (s *stream) setDeadline(t time.Time) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.deadline.at = t
	s.deadline.forced = true
	s.checkDeadline()
}

// checkDeadline ends the stream if its deadline has passed, and otherwise schedules a timer. The
// caller holds mu.
func (s *stream) checkDeadline() {
	d := &s.deadline
	if d.at.IsZero() || s.handlerDone {
		return
	}
	left := time.Until(d.at)
	if left <= 0 && !d.forced && s.meetsMinRate() {
		left = s.conn.config.WriteTimeout
		d.at = time.Now().Add(left)
	}
	switch {
	case left <= 0:
		s.conn.expire(s, os.ErrDeadlineExceeded)
	case !d.armed.IsZero() && !d.at.Before(d.armed): // the timer will check again
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

// meetsMinRate reports whether the connection has acknowledged MinRate since the deadline was last
// extended. The first call only records the state. The caller holds mu.
func (s *stream) meetsMinRate() bool {
	c, d := s.conn, &s.deadline
	c.observe(c.now())
	took := c.delivered - d.delivered
	first := !d.extended
	d.extended = true
	d.delivered = c.delivered
	return s.responseBegun.Load() && (first || took >= max(1, int64(float64(c.config.MinRate)*c.config.WriteTimeout.Seconds())))
}

// expire resets a stream for a timeout. If data of it are being written, the reset follows the
// write, because a frame must be complete. The connection continues. The caller holds mu.
func (c *conn) expire(s *stream, reason error) {
	switch {
	case c.streams[s.id] != s || s.responseEnded:
	case s.writing:
		s.expired = reason
	default:
		c.resetFor(s.id, http2.ErrCodeInternal, reason)
		c.flushAsync()
	}
}
