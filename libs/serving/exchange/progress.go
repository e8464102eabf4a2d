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

// progress measures whether a client reads the response on its connection. It is used for HTTP/1
// and for HTTP/2 of net/http. Package h2 measures its streams itself.
type progress struct {
	conn        Conn      // nil if the connection does not report acknowledged bytes
	minRateFrom time.Time // when MinRate starts to apply; zero if it never does

	acknowledged       int64
	acknowledgedGrewAt time.Time // when acknowledged last grew
	deliveredSince     time.Time // when the last outstanding byte was acknowledged; zero while one is outstanding
	connStalled        bool      // the connection, not only the stream, has stalled
	rateBase           int64     // the value of acknowledged at rateBaseAt, to measure the rate
	rateBaseAt         time.Time
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

// isStalled reports whether the client has stalled in one of these ways:
//   - It acknowledged nothing for the whole timeout.
//   - It kept the window of its stream closed for the whole timeout, so nothing could be sent.
//   - After minRateFrom, it acknowledged less than MinRate.
func (p *progress) isStalled(first bool, timeout time.Duration) bool {
	now := time.Now()
	acknowledged, outstanding := p.conn.Delivered()
	if first || acknowledged > p.acknowledged {
		p.acknowledgedGrewAt = now
	}
	if first {
		p.rateBase = acknowledged
		p.rateBaseAt = now
	}
	if first || outstanding > 0 {
		p.deliveredSince = time.Time{}
	}
	p.acknowledged = acknowledged
	if outstanding == 0 && p.deliveredSince.IsZero() {
		p.deliveredSince = now
	}
	if now.Sub(p.acknowledgedGrewAt) >= timeout || !p.deliveredSince.IsZero() && now.Sub(p.deliveredSince) >= timeout {
		p.connStalled = outstanding > 0
		return true
	}
	elapsed := now.Sub(p.rateBaseAt)
	if p.minRateFrom.IsZero() || now.Before(p.minRateFrom) || elapsed < timeout {
		return false
	}
	slow := float64(acknowledged-p.rateBase) < MinRate*elapsed.Seconds()
	p.rateBase = acknowledged
	p.rateBaseAt = now
	return slow
}
