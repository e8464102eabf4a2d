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
	pingedAt       time.Duration // when a PING was sent; 0 if none is unanswered
	pingMark       int64         // the value of delivered when the PING was sent
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
	if tickAt := c.now() + d; c.nextTick == 0 || tickAt < c.nextTick {
		c.nextTick = tickAt
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
	waitsForAck := outstanding > 0 && (c.writing || c.leaving)
	waitsForWindow := c.sendWindow <= 0 && len(c.blocked) > 0
	if !waitsForAck && !waitsForWindow {
		c.waitingSince = now
		if c.writing {
			return interval
		}
		return never
	}
	remaining := c.config.WriteTimeout - (now - max(c.waitingSince, c.grewAt))
	if remaining <= 0 {
		c.fail(ErrStalled)
	}
	return min(remaining, interval)
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

// checkIdle closes a leaving connection when linger has passed since the client acknowledged
// everything. It sends a GOAWAY on a connection that had no requests for the IdleTimeout. It returns
// the time until the next check. The caller holds mu.
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
	since   time.Time // when the client had acknowledged all data of the stream; zero before
	write   uint64    // the value of schedule.writes for the write that contains the stream's last data
	mark    int64     // the value of delivery.delivered that acknowledges that write; 0 until it is written
}

// watchWindow starts the stall timeout of a stream whose window is closed. The caller holds mu.
func (s *stream) watchWindow() {
	c, watch := s.conn, &s.stall
	if watch.active || watch.timeout <= 0 {
		return
	}
	watch.active = true
	watch.since = time.Time{}
	watch.mark = 0
	watch.write = c.writes
	if c.queue.size > 0 {
		watch.write++
	}
	if watch.timer == nil {
		watch.timer = time.AfterFunc(watch.timeout/checksPerTimeout, s.checkWindow)
	} else {
		watch.timer.Reset(watch.timeout / checksPerTimeout)
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
	c, watch := s.conn, &s.stall
	c.mu.Lock()
	defer c.mu.Unlock()
	if !watch.active || s.sendError() != nil {
		return
	}
	if watch.since.IsZero() && s.isDelivered() {
		watch.since = time.Now()
	}
	remaining := watch.timeout
	if !watch.since.IsZero() {
		remaining -= time.Since(watch.since)
	}
	if remaining <= 0 {
		c.expire(s, ErrStalled)
		return
	}
	watch.timer.Reset(min(remaining, watch.timeout/checksPerTimeout))
}

// isDelivered reports whether the client has acknowledged all that was sent on the stream. The
// caller holds mu.
func (s *stream) isDelivered() bool {
	c, watch := s.conn, &s.stall
	if c.written < watch.write {
		return false
	}
	outstanding := c.observe(c.now())
	if watch.mark == 0 {
		watch.mark = c.delivered + outstanding
	}
	return c.delivered >= watch.mark
}

// setStallTimeout changes the stall timeout of the stream; 0 means none.
func (s *stream) setStallTimeout(d time.Duration) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	wasActive := s.stall.active
	s.unwatchWindow()
	s.stall.timeout = d
	if wasActive {
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
	remaining := time.Until(d.at)
	if remaining <= 0 && !d.forced && s.meetsMinRate() {
		remaining = s.conn.config.WriteTimeout
		d.at = time.Now().Add(remaining)
	}
	switch {
	case remaining <= 0:
		s.conn.expire(s, os.ErrDeadlineExceeded)
	case !d.armed.IsZero() && !d.at.Before(d.armed): // the timer will check again
	case d.timer == nil:
		d.armed, d.timer = d.at, time.AfterFunc(remaining, s.deadlinePassed)
	default:
		d.armed = d.at
		d.timer.Reset(remaining)
	}
}

// deadlinePassed runs when the timer of the deadline fires.
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
	acknowledged := c.delivered - d.delivered
	first := !d.extended
	d.extended = true
	d.delivered = c.delivered
	minimum := max(1, int64(float64(c.config.MinRate)*c.config.WriteTimeout.Seconds()))
	return s.responseStarted.Load() && (first || acknowledged >= minimum)
}

// expire resets a stream for a timeout. If data of the stream is being written, the reset follows the
// write, because a frame must be complete. The connection continues. The caller holds mu.
func (c *conn) expire(s *stream, reason error) {
	switch {
	case c.streams[s.id] != s || s.responseEnded:
	case s.writing:
		s.expired = reason
	default:
		c.reset(s.id, http2.ErrCodeInternal, reason)
		c.flushAsync()
	}
}
