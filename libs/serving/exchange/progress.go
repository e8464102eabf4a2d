package exchange

import "time"

const (
	// ConnPatience times --stalled-client-timeout is the longest time without an acknowledgment of
	// sent bytes. A receiver may open its window in steps of 64 KiB, which take 16 s at 4 KiB/s.
	ConnPatience = 2
	// MinRate is the rate in bytes per second that a client has to reach after the response time.
	// It is half of the documented rate, because clients acknowledge in steps.
	MinRate = 2 << 10
	// progressChecks is the number of checks within one timeout.
	progressChecks = 4
)

// progress measures whether a client takes the response on its connection. It serves HTTP/1 and
// net/http's HTTP/2. Package h2 measures its streams itself.
type progress struct {
	conn  Conn      // nil if the connection does not report acknowledged bytes
	after time.Time // when MinRate starts to apply; zero for never

	acknowledged int64
	grewAt       time.Time // time of the last growth of acknowledged
	emptySince   time.Time // when the last outstanding byte was acknowledged; zero while one is outstanding
	dead         bool      // the connection, not only the stream, has stalled
	mark         int64     // the value of acknowledged at markAt, to measure the rate
	markAt       time.Time
}

// firstCheck returns the time after which a write in progress is checked.
func (p *progress) firstCheck(timeout time.Duration) time.Duration {
	if p.conn == nil {
		return timeout
	}
	return timeout / progressChecks
}

// nextCheck returns the time until the next check of a write, or 0 if its client has stalled for
// the timeout. first is true for the first check of a write.
func (p *progress) nextCheck(first bool, timeout time.Duration) time.Duration {
	if p.conn == nil || p.isStalled(first, timeout) {
		return 0
	}
	return timeout / progressChecks
}

// isStalled reports whether the client has stalled: for the whole timeout it acknowledged nothing, or
// it kept the window of its stream closed, so that there was nothing to acknowledge; or it
// acknowledged less than MinRate.
func (p *progress) isStalled(first bool, timeout time.Duration) bool {
	now := time.Now()
	acknowledged, outstanding := p.conn.Delivered()
	if first || acknowledged > p.acknowledged {
		p.grewAt = now
	}
	if first {
		p.mark = acknowledged
		p.markAt = now
	}
	if first || outstanding > 0 {
		p.emptySince = time.Time{}
	}
	p.acknowledged = acknowledged
	if outstanding == 0 && p.emptySince.IsZero() {
		p.emptySince = now
	}
	if now.Sub(p.grewAt) >= timeout || !p.emptySince.IsZero() && now.Sub(p.emptySince) >= timeout {
		p.dead = outstanding > 0
		return true
	}
	elapsed := now.Sub(p.markAt)
	if p.after.IsZero() || now.Before(p.after) || elapsed < timeout {
		return false
	}
	slow := float64(acknowledged-p.mark) < MinRate*elapsed.Seconds()
	p.mark = acknowledged
	p.markAt = now
	return slow
}
