package serving

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	// largeSend is the size in bytes from which a part of an HTTP/1 response is held and written at
	// once.
	largeSend = 8 << 10
	// partSize is the largest write in bytes. Bytes count as accepted after each part.
	partSize = 32 << 10
)

// turnConn is a connection below TLS. During the handshake it holds a permit of the handshake limit
// while it processes what the client sent. While it is corked, it holds a permit of the limit of
// long responses for encryption, so that many large responses leave a CPU for small ones. It holds
// no permit while it writes, because the client may be slow.
type turnConn struct {
	net.Conn
	h    *handshakes
	from netip.Addr
	ctx  context.Context // nil when the handshake is over
	has  bool

	raw syscall.RawConn // nil if conn is not a socket

	accepted atomic.Int64 // bytes that the kernel has accepted
	writing  atomic.Int64 // bytes of the current write that it has not accepted

	mu     sync.Mutex // held while something is written
	corked bool
	held   []byte  // while corked
	buffer *[]byte // that of held
	turn   bool    // holds a permit for long responses
	broken error   // the error of a write; none may follow it
}

func newTurnConn(ctx context.Context, h *handshakes, conn net.Conn) *turnConn {
	c := &turnConn{Conn: conn, h: h, ctx: ctx, from: remote(conn)}
	if s, ok := conn.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			c.raw = raw
			limitUnsent(raw)
		}
	}
	return c
}

// Read implements net.Conn.
func (c *turnConn) Read(p []byte) (int, error) {
	if c.ctx == nil {
		return c.Conn.Read(p)
	}
	c.leave()
	n, err := c.Conn.Read(p)
	if n == 0 || err != nil {
		return n, err
	}
	c.h.metrics.waiting.Inc()
	err = c.h.turns.enter(c.ctx, c.from)
	c.h.metrics.waiting.Dec()
	c.has = err == nil
	return n, err
}

func (c *turnConn) leave() {
	if c.has {
		c.has = false
		c.h.turns.leave()
	}
}

// finish ends the handshake.
func (c *turnConn) finish() {
	c.leave()
	c.ctx = nil
}

// Write implements net.Conn. All of p is written or held, or the connection is broken. The
// server's part of a handshake is written once it is computed, and may wait for its client.
func (c *turnConn) Write(p []byte) (int, error) {
	c.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return 0, c.broken
	}
	if !c.corked {
		return c.pass(p)
	}
	if len(c.held) > 0 && len(c.held)+len(p) > heldRoom { // a frame is as large as its client likes
		if _, err := c.pass(c.held); err != nil {
			return 0, err
		}
		c.held = c.held[:0]
	}
	c.hold(p)
	return len(p), nil
}

// cork holds written bytes until uncork, so that the records of one write above TLS leave together.
func (c *turnConn) cork() {
	c.mu.Lock()
	c.corked = true
	c.mu.Unlock()
}

// uncork writes what is held.
func (c *turnConn) uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	if c.buffer == nil {
		return c.broken
	}
	if c.broken == nil {
		_, _ = c.pass(c.held) // which says how it ends
	}
	*c.buffer = c.held[:0]
	heldBuffers.Put(c.buffer)
	c.held, c.buffer = nil, nil
	return c.broken
}

// hold appends to the held bytes. It waits for a permit first, because more bytes will be
// encrypted until uncork. The caller holds mu.
func (c *turnConn) hold(p []byte) {
	if !c.turn { // a permit is never held for long
		c.turn = c.h.sends.enter(context.Background(), c.from) == nil
	}
	if c.buffer == nil {
		c.buffer = heldBuffers.Get().(*[]byte)
		c.held = *c.buffer
	}
	c.held = append(c.held, p...)
}

// heldRoom is how many bytes are held at most.
const heldRoom = 88 << 10

var heldBuffers = sync.Pool{New: func() any { b := make([]byte, 0, heldRoom); return &b }}

// pass releases the permit and writes. The caller holds mu.
func (c *turnConn) pass(p []byte) (n int, err error) {
	if c.turn {
		c.turn = false
		c.h.sends.leave()
	}
	for n < len(p) && err == nil {
		c.writing.Store(int64(len(p) - n))
		var accepted int
		accepted, err = c.Conn.Write(p[n:min(len(p), n+partSize)])
		c.accepted.Add(int64(accepted))
		n += accepted
	}
	c.writing.Store(0)
	c.broken = err
	return n, err
}

// delivered returns how many bytes the client has acknowledged, and how many it has not yet
// acknowledged of those that were written. If the kernel does not report it, accepted bytes count as
// acknowledged. The first value may lag by partSize during a write.
func (c *turnConn) delivered() (acknowledged, outstanding int64) {
	accepted := c.accepted.Load()
	if c.raw != nil {
		if n, ok := unacknowledged(c.raw); ok {
			return accepted - n, n
		}
	}
	return accepted, c.writing.Load()
}

// Close implements net.Conn.
func (c *turnConn) Close() error {
	c.h.open.remove(c)
	return c.Conn.Close()
}
