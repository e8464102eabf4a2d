package serving

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
)

// What a connection of HTTP/2 may do besides asking and reading. Clients that cancel
// hundreds of watches, or take hundreds of megabytes, stay far below.
const (
	resetRate, resetBurst, resetStart       = 100, 1000, 100
	controlRate, controlBurst, controlStart = 2000, 20_000, 2000
	// alike is how many times the resets of a connection all those of an address may
	// have together.
	alike = 5
	// paidBytes of an answer pay for a control frame: who reads much sends many
	// WINDOW_UPDATEs.
	paidBytes = 256
	// smallData is a part of a body that does not pay for its frame.
	smallData = 64
	// largeHeaders is the size in bytes from which headers are read by turns: to take them
	// apart takes milliseconds. They are compressed: a byte may stand for a field.
	largeHeaders = 8 << 10
	// longestDelay bounds one delay; what is owed stays owed.
	longestDelay = time.Second
)

// serveHTTP2 has the server speak HTTP/2 through connections whose frames are counted.
func serveHTTP2(server *http.Server, m *clientMetrics, large *turns) error {
	gatherFrames()
	h2, all := &http2.Server{}, &addresses{purses: map[netip.Addr]*sharedPurse{}}
	if err := http2.ConfigureServer(server, h2); err != nil {
		return err
	}
	server.TLSNextProto[http2.NextProtoTLS] = func(hs *http.Server, c *tls.Conn, h http.Handler) {
		ctx := context.Background()
		if b, ok := h.(interface{ BaseContext() context.Context }); ok { // that of the connection
			ctx = b.BaseContext()
		}
		paced := newPacedConn(c, m, all)
		paced.turn.turns = large
		defer all.leave(paced.from)
		defer paced.turn.end()
		own := *h2
		own.NewWriteScheduler = func() http2.WriteScheduler { return newOrder() }
		own.ServeConn(paced, &http2.ServeConnOpts{Context: ctx, Handler: h, BaseConfig: hs})
	}
	return nil
}

// pacedConn reads slower from a client that resets streams, or sends frames that ask
// for nothing, faster than any good client does: it has to wait itself, and nobody
// else. A young connection may do less at a time than an old one, so that nothing is
// won by a new one.
type pacedConn struct {
	*tls.Conn
	below   *turnConn // may be nil
	metrics *clientMetrics
	in, out frames // of the one that reads and of the one that writes
	turn    headerTurn
	ctx     context.Context // ends when the connection is closed
	close   context.CancelFunc

	all  *addresses
	from *sharedPurse

	mu              sync.Mutex // addresses.mu is taken under it
	resets, control purse
	reset           bool // since the last delay
}

func newPacedConn(c *tls.Conn, m *clientMetrics, all *addresses) *pacedConn {
	now := time.Now()
	below, _ := c.NetConn().(*turnConn)
	ctx, cancel := context.WithCancel(context.Background())
	return &pacedConn{
		Conn: c, below: below, metrics: m, ctx: ctx, close: cancel,
		all: all, from: all.join(remote(c), now),
		in:      frames{skip: len(http2.ClientPreface)},
		resets:  purse{left: resetStart, rate: resetRate, most: resetBurst, at: now},
		control: purse{left: controlStart, rate: controlRate, most: controlBurst, at: now},
	}
}

// Read implements net.Conn.
func (c *pacedConn) Read(p []byte) (int, error) {
	c.turn.leave()
	c.delay()
	n, err := c.Conn.Read(p)
	if resets, control := c.in.count(p[:n]); resets+control > 0 {
		c.mu.Lock()
		c.spend(resets)
		c.control.left -= float64(control)
		c.mu.Unlock()
	}
	if c.in.large {
		c.turn.enter(c.ctx, c.from.address)
	}
	return n, err
}

// Write implements net.Conn. Streams that the server resets are the client's fault
// too, or nearly.
func (c *pacedConn) Write(p []byte) (int, error) {
	n, err := c.send(p)
	resets, _ := c.out.count(p[:n])
	c.mu.Lock()
	c.spend(resets)
	c.control.left = min(c.control.most, c.control.left+float64(n)/paidBytes)
	c.mu.Unlock()
	return n, err
}

// send writes what has gathered of frames. The records of TLS that it takes leave together.
func (c *pacedConn) send(p []byte) (int, error) {
	if c.below == nil || len(p) <= largestRecord {
		return c.Conn.Write(p)
	}
	c.below.keep(true)
	defer c.below.brief()
	c.below.cork()
	n, err := c.Conn.Write(p)
	if failed := c.below.uncork(); err == nil {
		err = failed
	}
	return n, err
}

// largestRecord is what a record of TLS has at most, in bytes.
const largestRecord = 16 << 10

// spend takes resets from the purse, and from that of the address. The caller holds mu.
func (c *pacedConn) spend(resets int) {
	if resets == 0 {
		return
	}
	c.reset = true
	c.resets.left -= float64(resets)
	c.all.mu.Lock()
	c.from.left -= float64(resets)
	c.all.mu.Unlock()
}

// Close implements net.Conn.
func (c *pacedConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// owed is how long nothing may be read, and what for. Who resets nothing does not
// pay for others of the address.
func (c *pacedConn) owed() (time.Duration, prometheus.Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reset && c.resets.left >= 0 && c.control.left >= 0 {
		return 0, nil
	}
	now := time.Now()
	owed, control := c.resets.owed(now), c.control.owed(now)
	if c.reset {
		c.reset = false
		c.all.mu.Lock()
		owed = max(owed, c.from.owed(now))
		c.all.mu.Unlock()
	}
	if control > owed {
		return control, c.metrics.control
	}
	return owed, c.metrics.resets
}

// delay waits until nothing is owed, or for the longest time.
func (c *pacedConn) delay() {
	owed, counter := c.owed()
	if owed <= 0 {
		return
	}
	owed = min(owed, longestDelay)
	counter.Add(owed.Seconds())
	timer := time.NewTimer(owed)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// addresses have the purses that their connections share.
type addresses struct {
	mu     sync.Mutex // a leaf
	purses map[netip.Addr]*sharedPurse
}

type sharedPurse struct {
	purse
	address     netip.Addr
	connections int
}

func (a *addresses) join(from netip.Addr, now time.Time) *sharedPurse {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.purses[from]
	if s == nil {
		s = &sharedPurse{purse: purse{left: alike * resetStart, rate: alike * resetRate, most: alike * resetBurst, at: now}, address: from}
		a.purses[from] = s
	}
	s.connections++
	return s
}

func (a *addresses) leave(s *sharedPurse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.connections--; s.connections == 0 {
		delete(a.purses, s.address)
	}
}

// purse is what may be spent at once. It is filled when it is found empty.
type purse struct {
	left, rate, most float64
	at               time.Time
}

// owed is how long it takes to fill a debt.
func (p *purse) owed(now time.Time) time.Duration {
	p.left = min(p.most, p.left+p.rate*now.Sub(p.at).Seconds())
	p.at = now
	return time.Duration(-p.left / p.rate * float64(time.Second))
}

// frames follows the frames in one direction of a connection.
type frames struct {
	skip int // bytes to the next header
	head [9]byte
	have int // bytes of head
	// block is how many bytes headers have, up to the frame that is followed; 0 when it has none.
	block int
	// large tells that a frame of large headers ended in what was counted last.
	large bool
}

// count returns how many frames reset a stream, and how many neither ask nor send
// anything to speak of, of those whose headers end in p.
func (f *frames) count(p []byte) (resets, control int) {
	f.large = false
	for len(p) > 0 {
		if n := min(f.skip, len(p)); n > 0 {
			f.skip -= n
			p = p[n:]
			f.large = f.large || f.skip == 0 && f.block >= largeHeaders
			continue
		}
		n := copy(f.head[f.have:], p)
		p = p[n:]
		if f.have += n; f.have < len(f.head) {
			return resets, control
		}
		f.have, f.skip = 0, int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2])
		block := f.block
		f.block = 0
		switch http2.FrameType(f.head[3]) {
		case http2.FrameHeaders:
			f.block = f.skip
		case http2.FrameRSTStream:
			resets++
		case http2.FrameData:
			if f.skip < smallData {
				control++
			}
		case http2.FrameContinuation:
			f.block = block + f.skip
			control++
		default:
			control++
		}
	}
	return resets, control
}
