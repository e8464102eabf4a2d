package serving

import (
	"net"
	"time"
)

// steadyConn is a connection on which each write has to be taken in time.
type steadyConn struct {
	net.Conn
	stall   time.Duration
	writing guard
	pausing *pausing

	progress progress
}

func (c *steadyConn) cut() { _ = c.Conn.SetWriteDeadline(longAgo) }

func (c *steadyConn) overdue(first bool) time.Duration {
	if c.progress.conn != nil && !c.progress.stalled(first, c.stall) {
		return c.stall / progressChecks
	}
	c.cut()
	return 0
}

func (c *steadyConn) Write(p []byte) (int, error) {
	limit := c.stall
	if c.progress.conn != nil {
		limit /= progressChecks
	}
	c.writing.begin(limit)
	n, err := c.Conn.Write(p)
	if paused := c.writing.end(); paused && err == nil {
		err = c.pausing.resume()
	}
	return n, err
}

// SetWriteDeadline does nothing: the bound of each write is the narrower one.
func (c *steadyConn) SetWriteDeadline(time.Time) error { return nil }
