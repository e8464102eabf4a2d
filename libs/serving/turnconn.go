package serving

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	// largeSend is the size in bytes from which a write waits for its turn.
	largeSend = 8 << 10
)

// turnConn is a connection below TLS. It has a turn while what was read of the client
// is worked on, until the handshake is over; and while a large part of an answer is
// given to the system, which costs more than making it: hundreds of clients that take
// large answers at a time keep nobody waiting who wants a small one. Who does not read
// has no turn.
type turnConn struct {
	net.Conn
	h    *handshakes
	from netip.Addr
	ctx  context.Context // nil when the handshake is over
	has  bool
	came int // bytes that are not counted yet

	raw   syscall.RawConn    // nil where the system's own is not known
	write func(uintptr) bool // method write, made once

	accepted atomic.Int64 // bytes that the kernel has taken
	writing  atomic.Int64 // bytes that it is to take; where its own counts are not known

	mu     sync.Mutex // held while something is written
	corked bool
	held   []byte  // while corked
	buffer *[]byte // that of held
	rest   []byte  // of what is being written
	turn   bool    // for that
	keeps  bool    // the turn, from one write to the next
	failed error   // of the system
	broken error   // whatever a write failed with, as nothing may follow it
}

func newTurnConn(ctx context.Context, h *handshakes, conn net.Conn) *turnConn {
	c := &turnConn{Conn: conn, h: h, ctx: ctx, from: remote(conn)}
	if s, ok := conn.(syscall.Conn); ok && ownWrites {
		if raw, err := s.SyscallConn(); err == nil {
			c.raw, c.write = raw, c.send
		}
	}
	return c
}

// Read implements net.Conn.
func (c *turnConn) Read(p []byte) (int, error) {
	if c.ctx == nil {
		n, err := c.Conn.Read(p)
		if c.came += n; c.came >= largeReceive {
			c.h.courtesy.received(c.came)
			c.came = 0
		}
		return n, err
	}
	c.leave()
	n, err := c.Conn.Read(p)
	if n == 0 || err != nil {
		return n, err
	}
	c.h.metrics.waiting.Inc()
	if !c.h.turns.enterNow() {
		c.h.courtesy.tell()
		err = c.h.turns.enter(c.ctx, c.from)
	}
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

// cork has what is written held until uncork, so that the records of one write above
// TLS leave together, and small waits are not paid for each.
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

// hold keeps bytes, of which more are to come. The caller holds mu.
func (c *turnConn) hold(p []byte) {
	if c.keeps {
		c.enter()
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

// pass writes. The caller holds mu.
func (c *turnConn) pass(p []byte) (n int, err error) {
	if len(p) < largeSend || c.raw == nil {
		c.yield() // the rest of a long answer may be so little, and its client slow to take it
		n, err = c.writeParts(p)
	} else {
		c.rest, c.failed = p, nil
		if err = c.raw.Write(c.write); err == nil && c.failed != nil {
			err = &net.OpError{Op: "write", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("write", c.failed)}
		}
		n, c.rest = len(p)-len(c.rest), nil
		if !c.keeps {
			c.yield()
		}
		c.h.courtesy.sent(n)
	}
	c.broken = err
	return n, err
}

// writeParts writes without a turn, in parts that show progress. The caller holds mu.
func (c *turnConn) writeParts(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		c.writing.Store(int64(len(p) - n))
		var took int
		took, err = c.Conn.Write(p[n:min(len(p), n+largeSend)])
		c.accepted.Add(int64(took))
		n += took
	}
	c.writing.Store(0)
	return n, err
}

// delivered returns how many bytes the client has acknowledged, and how many it has not yet of those
// that were written. Where the kernel does not tell, what it accepted counts as acknowledged.
func (c *turnConn) delivered() (acknowledged, outstanding int64) {
	accepted := c.accepted.Load()
	if c.raw == nil {
		return accepted, c.writing.Load()
	}
	outstanding = unacknowledged(c.raw)
	return accepted - outstanding, outstanding
}

// Close implements net.Conn.
func (c *turnConn) Close() error {
	c.h.open.remove(c)
	return c.Conn.Close()
}

// send gives the rest to the system, and tells whether it is done: if not, it is called
// again once the system takes more.
func (c *turnConn) send(fd uintptr) (done bool) {
	c.enter()
	for len(c.rest) > 0 {
		n, err := syscallWrite(fd, c.rest)
		if n > 0 {
			c.rest = c.rest[n:]
			c.accepted.Add(int64(n))
		}
		switch err {
		case nil:
			if n == 0 {
				c.failed = syscall.EIO
				return true
			}
		case syscall.EINTR:
		case syscall.EAGAIN:
			c.yield()
			return false
		default:
			c.failed = err
			return true
		}
	}
	return true
}

// keep has a part of an answer encrypted and written in one turn, which begins with the
// first write, or now. brief ends it.
func (c *turnConn) keep(now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw == nil {
		return
	}
	if c.keeps = true; now {
		c.enter()
	}
}

// brief ends the turn that is kept.
func (c *turnConn) brief() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keeps = false
	c.yield()
}

// enter waits for a turn: nobody has one for long. The caller holds mu.
func (c *turnConn) enter() {
	if !c.turn {
		c.turn = c.h.sends.enter(context.Background(), c.from) == nil
	}
}

// yield ends the turn, if there is one. The caller holds mu.
func (c *turnConn) yield() {
	if c.turn {
		c.turn = false
		c.h.sends.leave()
	}
}
