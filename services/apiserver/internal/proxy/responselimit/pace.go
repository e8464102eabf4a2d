package responselimit

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxSmallWrite is the maximum size of a small write in bytes. HTTP/2 clients acknowledge each
	// ping and each change of the settings with a small write. Requests are larger, so they are not
	// counted.
	maxSmallWrite = 64
	// bytesPerSmallWrite is the number of received bytes that allow one small write without
	// counting it. Clients send one WINDOW_UPDATE for at least 4 KiB.
	bytesPerSmallWrite = 1 << 10
	// smallWriteRate is the number of counted small writes of a connection per second that do not
	// delay reads. Clients send some when they cancel watches.
	smallWriteRate = 500
	// smallWriteBurst is the maximum burst of counted small writes.
	smallWriteBurst = 5000
	// initialBurst is the burst of a new connection.
	initialBurst = 200
)

// LimitTransport limits the heads of the responses that a transport receives to MaxHead. It also
// slows down reads from a server that causes many small writes, for example with pings: each write
// is a system call.
func LimitTransport(t *http.Transport) {
	t.MaxResponseHeaderBytes = MaxHead
	dial := t.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newPacedConn(conn), nil
	}
}

// pacedConn is a connection whose small writes delay its reads.
type pacedConn struct {
	net.Conn
	closed context.Context
	close  context.CancelFunc

	mu       sync.Mutex // leaf lock
	limiter  *rate.Limiter
	received int // bytes since the last small write that was not counted
	// readAfter is the time before which the connection is not read.
	readAfter time.Time
}

// newPacedConn returns conn with a limit of small writes.
func newPacedConn(conn net.Conn) *pacedConn {
	c := &pacedConn{Conn: conn, limiter: rate.NewLimiter(smallWriteRate, smallWriteBurst)}
	c.limiter.AllowN(time.Now(), smallWriteBurst-initialBurst)
	c.closed, c.close = context.WithCancel(context.Background())
	return c
}

// Read implements net.Conn.
func (c *pacedConn) Read(data []byte) (int, error) {
	c.mu.Lock()
	delay := time.Until(c.readAfter)
	c.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.closed.Done():
		}
	}
	n, err := c.Conn.Read(data)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = min(c.received+n, smallWriteBurst*bytesPerSmallWrite)
	return n, err
}

// Write implements net.Conn.
func (c *pacedConn) Write(b []byte) (int, error) {
	if len(b) <= maxSmallWrite {
		c.countSmallWrite()
	}
	return c.Conn.Write(b)
}

// countSmallWrite counts a small write, unless enough bytes were received for it, and sets the time
// of the next read.
func (c *pacedConn) countSmallWrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.received >= bytesPerSmallWrite {
		c.received -= bytesPerSmallWrite
		return
	}
	now := time.Now()
	c.readAfter = now.Add(c.limiter.ReserveN(now, 1).DelayFrom(now))
}

// Close implements net.Conn.
func (c *pacedConn) Close() error {
	c.close()
	return c.Conn.Close()
}
