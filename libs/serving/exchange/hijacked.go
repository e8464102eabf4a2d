package exchange

import (
	"net"
	"time"
)

// hijackedConn is a hijacked connection. Its writes fail when the client reads nothing for stall.
type hijackedConn struct {
	net.Conn
	stallTimeout time.Duration
	writeTimer   operationTimer
	slowWrite    *slowWriteHooks

	progress progress
}

func (c *hijackedConn) abort() { _ = c.Conn.SetWriteDeadline(pastDeadline) }

func (c *hijackedConn) checkWrite(first bool) time.Duration {
	next := c.progress.nextCheck(first, c.stallTimeout)
	if next == 0 {
		c.abort()
	}
	return next
}

func (c *hijackedConn) Write(p []byte) (int, error) {
	c.writeTimer.start(c.progress.firstCheck(c.stallTimeout))
	n, err := c.Conn.Write(p)
	if paused := c.writeTimer.stop(); paused && err == nil {
		err = c.slowWrite.resume()
	}
	return n, err
}

// SetWriteDeadline does nothing, because the limit of each write is shorter.
func (c *hijackedConn) SetWriteDeadline(time.Time) error { return nil }
