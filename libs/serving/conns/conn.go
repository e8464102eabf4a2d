package conns

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"binnacle/libs/limit"
)

// partSize is the largest write in bytes. Bytes count as accepted after each part.
const partSize = 32 << 10

// Conn is a connection below TLS. During the handshake it holds a permit of the handshake
// limit while it processes bytes of the client. While it is corked, it holds a permit of the limit
// of large responses for encryption, so that many large responses leave a CPU for small ones. It
// holds no permit while it writes, because the client may be slow.
type Conn struct {
	net.Conn
	listener           *Listener
	network            string
	ctx                context.Context // nil after the handshake
	hasHandshakePermit bool

	raw syscall.RawConn // nil if conn is not a socket

	accepted atomic.Int64 // bytes that the kernel has accepted
	writing  atomic.Int64 // bytes of the current write that it has not accepted

	mu            sync.Mutex // held while something is written
	corked        bool
	corkedBytes   []byte  // bytes written since Cork
	pooled        *[]byte // the pooled buffer of corkedBytes
	hasSendPermit bool    // holds a permit for large responses
	writeErr      error   // the error of a write; no write may follow it
}

func newConn(ctx context.Context, h *Listener, conn net.Conn) *Conn {
	c := &Conn{Conn: conn, listener: h, ctx: ctx, network: clientNetwork(conn)}
	if s, ok := conn.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			c.raw = raw
			limitUnsent(raw)
		}
	}
	return c
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.ctx == nil {
		return c.Conn.Read(p)
	}
	c.releaseHandshakePermit()
	n, err := c.Conn.Read(p)
	if n == 0 || err != nil {
		return n, err
	}
	c.listener.metrics.waiting.Inc()
	err = c.listener.limiter.Acquire(c.ctx, limit.Claim[string]{Key: c.network})
	c.listener.metrics.waiting.Dec()
	c.hasHandshakePermit = err == nil
	return n, err
}

func (c *Conn) releaseHandshakePermit() {
	if c.hasHandshakePermit {
		c.hasHandshakePermit = false
		c.listener.limiter.Release(limit.Claim[string]{})
	}
}

// finishHandshake ends the handshake.
func (c *Conn) finishHandshake() {
	c.releaseHandshakePermit()
	c.ctx = nil
}

// Write implements net.Conn. All of p is written or held, or the connection is broken. The server's
// part of a handshake is written after it was computed, so the handshake permit is released first.
func (c *Conn) Write(p []byte) (int, error) {
	c.releaseHandshakePermit()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writeErr != nil {
		return 0, c.writeErr
	}
	if !c.corked {
		return c.writeOut(p)
	}
	if len(c.corkedBytes) > 0 && len(c.corkedBytes)+len(p) > maxCorked { // clients choose the frame size
		if _, err := c.writeOut(c.corkedBytes); err != nil {
			return 0, err
		}
		c.corkedBytes = c.corkedBytes[:0]
	}
	c.buffer(p)
	return len(p), nil
}

// Cork holds written bytes until Uncork, so that the records of one write above TLS leave together.
func (c *Conn) Cork() {
	c.mu.Lock()
	c.corked = true
	c.mu.Unlock()
}

// Uncork writes the held bytes.
func (c *Conn) Uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	if c.pooled == nil {
		return c.writeErr
	}
	if c.writeErr == nil {
		_, _ = c.writeOut(c.corkedBytes) // sets writeErr
	}
	*c.pooled = c.corkedBytes[:0]
	corkBuffers.Put(c.pooled)
	c.corkedBytes = nil
	c.pooled = nil
	return c.writeErr
}

// buffer appends to the held bytes. It waits for a permit first, because more bytes will be
// encrypted until Uncork. The caller holds mu.
func (c *Conn) buffer(p []byte) {
	if !c.hasSendPermit { // permits are held briefly, so the wait is short
		c.hasSendPermit = c.listener.sendLimiter.Acquire(context.Background(), limit.Claim[string]{Key: c.network}) == nil
	}
	if c.pooled == nil {
		c.pooled = corkBuffers.Get().(*[]byte)
		c.corkedBytes = *c.pooled
	}
	c.corkedBytes = append(c.corkedBytes, p...)
}

// maxCorked is the largest number of held bytes.
const maxCorked = 88 << 10

var corkBuffers = sync.Pool{New: func() any { b := make([]byte, 0, maxCorked); return &b }}

// writeOut releases the permit and writes. The caller holds mu.
func (c *Conn) writeOut(p []byte) (n int, err error) {
	if c.hasSendPermit {
		c.hasSendPermit = false
		c.listener.sendLimiter.Release(limit.Claim[string]{})
	}
	for n < len(p) && err == nil {
		c.writing.Store(int64(len(p) - n))
		var accepted int
		accepted, err = c.Conn.Write(p[n:min(len(p), n+partSize)])
		c.accepted.Add(int64(accepted))
		n += accepted
	}
	c.writing.Store(0)
	c.writeErr = err
	return n, err
}

// Delivered returns the number of bytes that the client has acknowledged, and the number of written
// bytes that it has not. If the kernel does not report it, accepted bytes count as acknowledged.
// The first value may lag by partSize during a write.
func (c *Conn) Delivered() (acknowledged, outstanding int64) {
	accepted := c.accepted.Load()
	if c.raw != nil {
		if n, ok := unacknowledged(c.raw); ok {
			return accepted - n, n
		}
	}
	return accepted, c.writing.Load()
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.listener.openConns.remove(c)
	return c.Conn.Close()
}
