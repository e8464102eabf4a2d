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
	// A write of at most smallWrite bytes holds no request. HTTP/2 clients acknowledge each ping and
	// each change of the settings with one.
	smallWrite = 64
	// paidBytes is the number of received bytes that pay for one small write. Clients send one
	// WINDOW_UPDATE for at least 4 KiB.
	paidBytes = 1 << 10
	// smallWriteRate is the rate of other small writes of a connection in a second, smallWriteBurst
	// their burst and smallWriteStart the burst of a new connection. Clients send some when they cancel
	// watches.
	smallWriteRate, smallWriteBurst, smallWriteStart = 500, 5000, 200
)

// Bound limits the heads of the responses that a transport receives to MaxHead, and makes it read more
// slowly from servers that make it write without need, such as with pings. Each costs a system call.
func Bound(t *http.Transport) {
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

	mu       sync.Mutex // a leaf
	limiter  *rate.Limiter
	received int // bytes that pay for small writes
	debt     time.Time
}

func newPacedConn(conn net.Conn) *pacedConn {
	c := &pacedConn{Conn: conn, limiter: rate.NewLimiter(smallWriteRate, smallWriteBurst)}
	c.limiter.AllowN(time.Now(), smallWriteBurst-smallWriteStart)
	c.closed, c.close = context.WithCancel(context.Background())
	return c
}

// Read implements net.Conn.
func (c *pacedConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	delay := time.Until(c.debt)
	c.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.closed.Done():
		}
	}
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = min(c.received+n, smallWriteBurst*paidBytes)
	return n, err
}

// Write implements net.Conn.
func (c *pacedConn) Write(b []byte) (int, error) {
	if len(b) <= smallWrite {
		c.countSmallWrite()
	}
	return c.Conn.Write(b)
}

func (c *pacedConn) countSmallWrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.received >= paidBytes {
		c.received -= paidBytes
		return
	}
	now := time.Now()
	c.debt = now.Add(c.limiter.ReserveN(now, 1).DelayFrom(now))
}

// Close implements net.Conn.
func (c *pacedConn) Close() error {
	c.close()
	return c.Conn.Close()
}
