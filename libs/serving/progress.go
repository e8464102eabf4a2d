package serving

import (
	"sync"
	"time"
)

const (
	// connPatience is how many times --stalled-client-timeout a connection may go without an
	// acknowledgment of what is sent. A receiver may announce room in steps of 64 KiB, which
	// take 16 s at 4 KiB/s.
	connPatience = 2
	// minRate is what a connection has to take of responses that have lasted longer than a
	// response may, in bytes a second. It is half of what is promised to clients, as they
	// acknowledge in steps.
	minRate = 2 << 10
	// progressChecks is how often a timeout is looked at before it is over.
	progressChecks = 4
)

// progress watches whether the connection of a response takes what is written. It is for HTTP/1 and
// for net/http's HTTP/2; package h2 watches its streams itself.
type progress struct {
	conn  *turnConn
	after time.Time // from then on minRate is wanted; zero for never

	acknowledged int64
	grew         time.Time // when acknowledged did last
	empty        time.Time // since when nothing was outstanding; zero when something is
	dead         bool      // the connection, not only the stream, takes nothing
	mark         int64     // acknowledged at markAt, to measure the rate
	markAt       time.Time
}

// stalled reports whether a write that lasts has waited for the client for as long as the timeout,
// during which nothing was acknowledged, or nothing was left to acknowledge: then the client keeps
// its window closed. first is true for the first call of a write.
func (p *progress) stalled(first bool, timeout time.Duration) bool {
	now := time.Now()
	acknowledged, outstanding := p.conn.delivered()
	if first || acknowledged > p.acknowledged {
		p.grew = now
	}
	if first {
		p.mark, p.markAt = acknowledged, now
	}
	if first || outstanding > 0 {
		p.empty = time.Time{}
	}
	if p.acknowledged = acknowledged; outstanding == 0 && p.empty.IsZero() {
		p.empty = now
	}
	if now.Sub(p.grew) >= timeout || !p.empty.IsZero() && now.Sub(p.empty) >= timeout {
		p.dead = outstanding > 0
		return true
	}
	elapsed := now.Sub(p.markAt)
	if p.after.IsZero() || now.Before(p.after) || elapsed < timeout {
		return false
	}
	slow := float64(acknowledged-p.mark) < minRate*elapsed.Seconds()
	p.mark, p.markAt = acknowledged, now
	return slow
}

// openConns are the connections whose handshake is over, until they are closed. The zero value has
// none.
type openConns struct {
	mu    sync.Mutex // a leaf
	conns map[*turnConn]struct{}
}

func (o *openConns) add(c *turnConn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conns == nil {
		o.conns = map[*turnConn]struct{}{}
	}
	o.conns[c] = struct{}{}
}

func (o *openConns) remove(c *turnConn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.conns, c)
}

// delivered sums up what clients have acknowledged, and what they have not yet.
func (o *openConns) delivered() (acknowledged, outstanding int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.conns {
		a, n := c.delivered()
		acknowledged, outstanding = acknowledged+a, outstanding+n
	}
	return acknowledged, outstanding
}
