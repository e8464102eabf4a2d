package conns

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"binnacle/libs/limit"
)

// partSize is the maximum size in bytes of one write to the kernel. Larger writes are split, so
// that acceptedBytes advances during a long write.
const partSize = 32 << 10

// Conn is a connection below TLS. During the handshake it acquires a permit of the handshake limit
// for the time in which it processes bytes of the client. While it is corked and buffers bytes, it
// has a permit of the limit of large responses, so that the encryption of many large responses
// leaves a CPU for small ones. It releases the permits before it writes, because the client may be
// slow.
type Conn struct {
	net.Conn
	listener *Listener
	network  string
	// ctx is the context of the handshake; nil after it. Only the goroutine that does the handshake
	// sets it or reads a non-nil value. Later readers and writers start after the handshake.
	ctx               context.Context
	handshakeAcquired bool // has a permit of the handshake limit

	raw syscall.RawConn // nil if conn is not a socket

	acceptedBytes   atomic.Int64 // bytes that the kernel has accepted, over all writes
	unacceptedBytes atomic.Int64 // bytes of the current write that the kernel has not accepted

	mu           sync.Mutex // held while something is written
	corked       bool
	buffered     []byte  // bytes written since Cork
	pooledBuffer *[]byte // the array of buffered, from corkBuffers; nil if nothing is buffered
	sendAcquired bool    // has a permit of the limit of large responses
	writeErr     error   // the first error of a write; all later writes return it
}

func newConn(ctx context.Context, l *Listener, conn net.Conn) *Conn {
	c := &Conn{Conn: conn, listener: l, ctx: ctx, network: clientNetwork(conn)}
	if s, ok := conn.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			c.raw = raw
			limitUnsent(raw)
		}
	}
	return c
}

// Read implements net.Conn.
func (c *Conn) Read(data []byte) (int, error) {
	if c.ctx == nil {
		return c.Conn.Read(data)
	}
	c.releaseHandshakePermit()
	n, err := c.Conn.Read(data)
	if n == 0 || err != nil {
		return n, err
	}
	c.listener.metrics.waitingHandshakes.Inc()
	err = c.listener.handshakeLimiter.Acquire(c.ctx, limit.Claim[string]{Key: c.network})
	c.listener.metrics.waitingHandshakes.Dec()
	c.handshakeAcquired = err == nil
	return n, err
}

func (c *Conn) releaseHandshakePermit() {
	if c.handshakeAcquired {
		c.handshakeAcquired = false
		c.listener.handshakeLimiter.Release(limit.Claim[string]{})
	}
}

// finishHandshake is called when the handshake has ended. Later reads need no permit.
func (c *Conn) finishHandshake() {
	c.releaseHandshakePermit()
	c.ctx = nil
}

// Write implements net.Conn. It writes data, or buffers it while the connection is corked. After an
// error, all later calls return the same error. Write releases the handshake permit first: the
// server has already computed the part of the handshake that it writes.
func (c *Conn) Write(data []byte) (int, error) {
	c.releaseHandshakePermit()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writeErr != nil {
		return 0, c.writeErr
	}
	if !c.corked {
		return c.writeToKernel(data)
	}
	if len(c.buffered) > 0 && len(c.buffered)+len(data) > maxCorked { // clients choose the frame size
		if _, err := c.writeToKernel(c.buffered); err != nil {
			return 0, err
		}
		c.buffered = c.buffered[:0]
	}
	c.appendBuffered(data)
	return len(data), nil
}

// Cork makes Write buffer bytes until Uncork, so that the TLS records of one response are sent
// together. If the buffer would exceed maxCorked bytes, Write sends the buffered bytes first.
func (c *Conn) Cork() {
	c.mu.Lock()
	c.corked = true
	c.mu.Unlock()
}

// Uncork writes the buffered bytes and ends the effect of Cork.
func (c *Conn) Uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	if c.pooledBuffer == nil {
		return c.writeErr
	}
	if c.writeErr == nil {
		_, _ = c.writeToKernel(c.buffered) // sets writeErr
	}
	*c.pooledBuffer = c.buffered[:0]
	corkBuffers.Put(c.pooledBuffer)
	c.buffered = nil
	c.pooledBuffer = nil
	return c.writeErr
}

// appendBuffered appends data to the buffered bytes. It acquires a permit of the limit of large
// responses first, because the caller will encrypt more bytes until Uncork. The caller holds mu.
func (c *Conn) appendBuffered(data []byte) {
	if !c.sendAcquired { // the wait is short, because permits are released soon
		c.sendAcquired = c.listener.sendLimiter.Acquire(context.Background(), limit.Claim[string]{Key: c.network}) == nil
	}
	if c.pooledBuffer == nil {
		c.pooledBuffer = corkBuffers.Get().(*[]byte)
		c.buffered = *c.pooledBuffer
	}
	c.buffered = append(c.buffered, data...)
}

// maxCorked is the maximum number of buffered bytes.
const maxCorked = 88 << 10

var corkBuffers = sync.Pool{New: func() any { b := make([]byte, 0, maxCorked); return &b }}

// writeToKernel releases the permit, because the client may be slow, and writes data in parts. The
// caller holds mu.
func (c *Conn) writeToKernel(data []byte) (written int, err error) {
	if c.sendAcquired {
		c.sendAcquired = false
		c.listener.sendLimiter.Release(limit.Claim[string]{})
	}
	for written < len(data) && err == nil {
		c.unacceptedBytes.Store(int64(len(data) - written))
		var accepted int
		accepted, err = c.Conn.Write(data[written:min(len(data), written+partSize)])
		c.acceptedBytes.Add(int64(accepted))
		written += accepted
	}
	c.unacceptedBytes.Store(0)
	c.writeErr = err
	return written, err
}

// Delivered returns the number of bytes that the client has acknowledged, and the number of written
// bytes that it has not acknowledged. If the kernel does not report it, accepted bytes count as
// acknowledged. The first value may lag by partSize during a write.
func (c *Conn) Delivered() (acknowledged, outstanding int64) {
	accepted := c.acceptedBytes.Load()
	if c.raw != nil {
		if n, ok := unacknowledged(c.raw); ok {
			return accepted - n, n
		}
	}
	return accepted, c.unacceptedBytes.Load()
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.listener.openConns.remove(c)
	return c.Conn.Close()
}
