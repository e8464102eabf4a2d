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

// delivery tracks how many bytes the client has acknowledged, and the timeouts of the connection.
// Durations are since conn.startedAt. Guarded by conn.mu.
type delivery struct {
	delivered         int64         // the largest acknowledged count of Wire.Delivered, in bytes
	deliveredGrewAt   time.Duration // when delivered last grew
	progressDueSince  time.Duration // when the timeout of checkProgress was last started
	allDeliveredSince time.Duration // after a GOAWAY: when the last byte was acknowledged
	pingedAt          time.Duration // when a PING was sent; 0 if none is unacknowledged
	deliveredAtPing   int64         // the value of delivered when the PING was sent
	nextCheck         time.Duration // when checkTimeouts is called next; 0 while it runs
}

// updateDelivered updates delivered, and returns the number of bytes that the kernel has accepted
// but the client has not acknowledged. The caller holds mu.
func (c *conn) updateDelivered(now time.Duration) int64 {
	delivered, outstanding := c.wire.Delivered()
	if delivered > c.delivered {
		c.delivered = delivered
		c.deliveredGrewAt = now
	}
	return outstanding
}

// checkTimeouts checks the timeouts of the connection, and schedules the next check.
func (c *conn) checkTimeouts() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	now := c.now()
	outstanding := c.updateDelivered(now)
	c.nextCheck = 0
	next := min(c.checkProgress(now, outstanding), c.checkLiveness(now), c.checkIdle(now, outstanding))
	if c.err == nil {
		c.scheduleCheck(max(next, time.Millisecond))
	}
}

// scheduleCheck schedules checkTimeouts after d, unless it is scheduled earlier. The caller holds
// mu.
func (c *conn) scheduleCheck(d time.Duration) {
	if at := c.now() + d; c.nextCheck == 0 || at < c.nextCheck {
		c.nextCheck = at
		c.timer.Reset(d)
	}
}

// startProgressTimeout starts the timeout of checkProgress. The caller holds mu.
func (c *conn) startProgressTimeout() {
	c.progressDueSince = c.now()
	c.scheduleCheck(c.config.WriteTimeout / checksPerTimeout)
}

// checkProgress fails the connection if the client acknowledged no byte for the whole WriteTimeout,
// although bytes were outstanding or streams waited for the connection window. It returns the time
// until the next check. The caller holds mu.
func (c *conn) checkProgress(now time.Duration, outstanding int64) time.Duration {
	interval := c.config.WriteTimeout / checksPerTimeout
	waitsForAck := outstanding > 0 && (c.tokenTaken || c.goAwaySent)
	waitsForWindow := c.sendWindow <= 0 && len(c.waitingForConnWindow) > 0
	if !waitsForAck && !waitsForWindow {
		c.progressDueSince = now
		if c.tokenTaken {
			return interval
		}
		return never
	}
	remaining := c.config.WriteTimeout - (now - max(c.progressDueSince, c.deliveredGrewAt))
	if remaining <= 0 {
		c.terminate(ErrStalled)
	}
	return min(remaining, interval)
}

// checkLiveness sends a PING to a silent client. It fails the connection if no frame arrived within
// PingTimeout and nothing but the PING was acknowledged. It returns the time until the next check.
// The caller holds mu.
func (c *conn) checkLiveness(now time.Duration) time.Duration {
	silent := now - time.Duration(c.lastReadAt.Load())
	if c.pingedAt > 0 && silent < now-c.pingedAt {
		c.pingedAt = 0 // a frame arrived after the PING
	}
	switch {
	case c.pingedAt > 0 && now-c.pingedAt < c.config.PingTimeout:
		return c.config.PingTimeout - (now - c.pingedAt)
	case c.pingedAt > 0 && c.delivered-c.deliveredAtPing > pingSize: // the client is downloading
		c.pingedAt = 0
		c.lastReadAt.Store(int64(now))
		return c.config.PingAfter
	case c.pingedAt > 0:
		c.terminate(errPingTimeout)
	case silent >= c.config.PingAfter:
		c.pingedAt = now
		c.deliveredAtPing = c.delivered
		c.queue.append(appendPing(c.scratch[:0], 0, make([]byte, 8)))
		c.flushAsync()
		return c.config.PingTimeout
	}
	return c.config.PingAfter - silent
}

// checkIdle sends a GOAWAY on a connection that had no requests for the IdleTimeout. After a
// GOAWAY, it closes the connection once linger has passed since the client acknowledged everything.
// It returns the time until the next check. The caller holds mu.
func (c *conn) checkIdle(now time.Duration, outstanding int64) time.Duration {
	switch {
	case !c.isQuiet(): // not idle
	case c.goAwaySent && outstanding > 0:
		c.allDeliveredSince = now
		return linger / checksPerTimeout
	case c.goAwaySent && now-c.allDeliveredSince >= linger:
		c.terminate(errConnClosed)
	case c.goAwaySent:
		return linger - (now - c.allDeliveredSince)
	case c.runningHandlers > 0: // of streams that the client has reset
	case now-c.idleSince >= c.config.IdleTimeout:
		c.goAwayLocked(http2.ErrCodeNo)
		return linger
	default:
		return c.config.IdleTimeout - (now - c.idleSince)
	}
	return never
}

// isQuiet reports whether the connection has no streams and nothing to write. The caller holds mu.
func (c *conn) isQuiet() bool { return len(c.streams) == 0 && !c.tokenTaken && c.queue.size == 0 }

// scheduleClose starts the linger period of a connection after a GOAWAY, once it has nothing more
// to send. The caller holds mu.
func (c *conn) scheduleClose() {
	if c.goAwaySent && c.isQuiet() && c.err == nil {
		c.progressDueSince = c.now()
		c.allDeliveredSince = c.progressDueSince
		c.scheduleCheck(linger / checksPerTimeout)
	}
}

// stall tracks how long the send window of a stream is closed. Guarded by conn.mu.
type stall struct {
	timeout     time.Duration // 0 for none
	timer       *time.Timer
	active      bool      // the timeout runs
	deliveredAt time.Time // when the client acknowledged all data of the stream; zero before
	// lastWrite is the write that contains the last data of the stream. Writes are numbered by
	// schedule.writesStarted.
	lastWrite uint64
	// acknowledgedAt is the value of delivery.delivered at which the client has acknowledged
	// lastWrite. It is 0 until lastWrite is complete.
	acknowledgedAt int64
}

// startStallTimer starts the stall timeout of a stream whose window is closed. The caller holds mu.
func (s *stream) startStallTimer() {
	c, stall := s.conn, &s.stall
	if stall.active || stall.timeout <= 0 {
		return
	}
	stall.active = true
	stall.deliveredAt = time.Time{}
	stall.acknowledgedAt = 0
	stall.lastWrite = c.writesStarted
	if c.queue.size > 0 {
		stall.lastWrite++ // the queue may hold data of the stream
	}
	if stall.timer == nil {
		stall.timer = time.AfterFunc(stall.timeout/checksPerTimeout, s.checkStall)
	} else {
		stall.timer.Reset(stall.timeout / checksPerTimeout)
	}
}

// stopStallTimer cancels the stall timeout, because the window is open. The caller holds mu.
func (s *stream) stopStallTimer() {
	if s.stall.active {
		s.stall.active = false
		s.stall.timer.Stop()
	}
}

// checkStall resets the stream if its window was closed for the whole timeout. The timeout starts
// when the client has acknowledged all that was sent on the stream. Before that it cannot open the
// window.
func (s *stream) checkStall() {
	c, stall := s.conn, &s.stall
	c.mu.Lock()
	defer c.mu.Unlock()
	if !stall.active || s.sendError() != nil {
		return
	}
	if stall.deliveredAt.IsZero() && s.isDelivered() {
		stall.deliveredAt = time.Now()
	}
	remaining := stall.timeout
	if !stall.deliveredAt.IsZero() {
		remaining -= time.Since(stall.deliveredAt)
	}
	if remaining <= 0 {
		c.expireStream(s, ErrStalled)
		return
	}
	stall.timer.Reset(min(remaining, stall.timeout/checksPerTimeout))
}

// isDelivered reports whether the client has acknowledged all that was sent on the stream. The
// caller holds mu.
func (s *stream) isDelivered() bool {
	c, stall := s.conn, &s.stall
	if c.writesCompleted < stall.lastWrite {
		return false
	}
	outstanding := c.updateDelivered(c.now())
	if stall.acknowledgedAt == 0 {
		stall.acknowledgedAt = c.delivered + outstanding
	}
	return c.delivered >= stall.acknowledgedAt
}

// setStallTimeout changes the stall timeout of the stream; 0 means none.
func (s *stream) setStallTimeout(d time.Duration) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	wasActive := s.stall.active
	s.stopStallTimer()
	s.stall.timeout = d
	if wasActive {
		s.startStallTimer()
	}
}

// deadline is the time by which a response must have been sent. Guarded by conn.mu.
type deadline struct {
	at           time.Time // zero if there is no deadline
	timerFiresAt time.Time // zero if the timer is stopped or has fired
	timer        *time.Timer
	setByHandler bool // if set, progress of the client does not extend the deadline
	// deliveredAtExtension is the value of delivery.delivered when the deadline was last extended.
	deliveredAtExtension int64
	extended             bool // the deadline was extended at least once
}

// setDeadline sets the write deadline that the handler chose; zero means none.
func (s *stream) setDeadline(t time.Time) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.deadline.at = t
	s.deadline.setByHandler = true
	s.checkDeadline()
}

// checkDeadline resets the stream if its deadline has passed, and otherwise schedules the next
// check. While the client reads at MinRate, it extends a deadline that the handler did not set. The
// caller holds mu.
func (s *stream) checkDeadline() {
	d := &s.deadline
	if d.at.IsZero() || s.handlerDone {
		return
	}
	remaining := time.Until(d.at)
	if remaining <= 0 && !d.setByHandler && s.meetsMinRate() {
		remaining = s.conn.config.WriteTimeout
		d.at = time.Now().Add(remaining)
	}
	switch {
	case remaining <= 0:
		s.conn.expireStream(s, os.ErrDeadlineExceeded)
	case !d.timerFiresAt.IsZero() && !d.at.Before(d.timerFiresAt): // the timer will check again
	case d.timer == nil:
		d.timerFiresAt = d.at
		d.timer = time.AfterFunc(remaining, s.deadlinePassed)
	default:
		d.timerFiresAt = d.at
		d.timer.Reset(remaining)
	}
}

// deadlinePassed runs when the timer of the deadline fires.
func (s *stream) deadlinePassed() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.deadline.timerFiresAt = time.Time{}
	s.checkDeadline()
}

// meetsMinRate reports whether the client has read at least MinRate, over all streams of the
// connection, since the deadline was last extended. The first call returns true if the response has
// started. The caller holds mu.
func (s *stream) meetsMinRate() bool {
	c, d := s.conn, &s.deadline
	c.updateDelivered(c.now())
	acknowledged := c.delivered - d.deliveredAtExtension
	first := !d.extended
	d.extended = true
	d.deliveredAtExtension = c.delivered
	minimum := max(1, int64(float64(c.config.MinRate)*c.config.WriteTimeout.Seconds())) // in bytes
	return s.responseStarted.Load() && (first || acknowledged >= minimum)
}

// expireStream resets a stream for a timeout. If data of the stream is being written, the reset
// follows the write, because a frame must be complete. The connection continues. The caller holds
// mu.
func (c *conn) expireStream(s *stream, reason error) {
	switch {
	case c.streams[s.id] != s || s.responseEnded:
	case s.dataInFlight:
		s.expiryReason = reason
	default:
		c.resetStream(s.id, http2.ErrCodeInternal, reason)
		c.flushAsync()
	}
}
