package serving

import (
	"net"
	"time"
)

// steadyConn is a hijacked connection whose client has to take each write in time.
type steadyConn struct {
	net.Conn
	stall   time.Duration
	writing guard
	pausing *pausing

	progress progress
}

func (c *steadyConn) cut() { _ = c.Conn.SetWriteDeadline(longAgo) }

func (c *steadyConn) overdue(first bool) time.Duration {
	next := c.progress.nextCheck(first, c.stall)
	if next == 0 {
		c.cut()
	}
	return next
}

func (c *steadyConn) Write(p []byte) (int, error) {
	c.writing.begin(c.progress.firstCheck(c.stall))
	n, err := c.Conn.Write(p)
	if paused := c.writing.end(); paused && err == nil {
		err = c.pausing.resume()
	}
	return n, err
}

// SetWriteDeadline does nothing, because the bound of each write is narrower.
func (c *steadyConn) SetWriteDeadline(time.Time) error { return nil }
