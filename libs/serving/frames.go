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

	"binnacle/libs/serving/h2"
)

// What a connection of HTTP/2 may do besides asking and reading. Clients that cancel
// hundreds of watches, or take hundreds of megabytes, stay far below.
const (
	resetRate, resetBurst, resetStart       = 100, 1000, 100
	controlRate, controlBurst, controlStart = 2000, 20_000, 2000
	// resetBurstSeconds is for how many seconds resets may come at once.
	resetBurstSeconds = resetBurst / resetRate
	// paidBytes of an answer pay for a control frame: who reads much sends many
	// WINDOW_UPDATEs.
	paidBytes = 256
	// updatesPerFrame is how many control frames a frame of data pays for besides.
	updatesPerFrame = 2
	// headersWait is how long large headers wait for their turn. Then they are read without:
	// something else takes longer than it may.
	headersWait = 10 * time.Second
	// longestDelay bounds one delay; what is owed stays owed.
	longestDelay = time.Second
)

// serveHTTP2 has the server speak HTTP/2 through connections whose frames are counted. resets is how
// many streams the connections of an address may reset together in a second.
func serveHTTP2(server *http.Server, config h2.Config, resets int, m *clientMetrics, heads *heads) error {
	if err := http2.ConfigureServer(server, nil); err != nil { // it knows what TLS has to offer
		return err
	}
	frames := h2.NewServer(config)
	server.RegisterOnShutdown(frames.Shutdown)
	all := newAddresses(resets)
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		http2.NextProtoTLS: func(_ *http.Server, c *tls.Conn, h http.Handler) {
			ctx := context.Background()
			if b, ok := h.(interface{ BaseContext() context.Context }); ok { // that of the connection
				ctx = b.BaseContext()
			}
			paced := newPacedConn(c, m, all)
			paced.heads = heads
			defer all.leave(paced.from)
			frames.ServeConn(ctx, paced, h)
			paced.KeepLarge(0)
		},
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
	heads   *heads          // nil is without bounds
	turn    bool            // of the one that reads
	kept    int             // what is taken of heads
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
		resets:  purse{left: resetStart, rate: resetRate, most: resetBurst, at: now},
		control: purse{left: controlStart, rate: controlRate, most: controlBurst, at: now},
	}
}

// Came implements h2.Wire.
func (c *pacedConn) Came(resets, control int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spend(resets)
	c.control.left -= float64(control)
}

// Sent implements h2.Wire. Streams that the server resets are the client's fault too, or nearly. A
// frame of data pays for the WINDOW_UPDATEs of its stream and of the connection, however small the
// client's windows are.
func (c *pacedConn) Sent(resets, frames, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spend(resets)
	c.control.left = min(c.control.most, c.control.left+updatesPerFrame*float64(frames)+float64(bytes)/paidBytes)
}

// Delivered implements h2.Wire.
func (c *pacedConn) Delivered() (acknowledged, outstanding int64) {
	if c.below == nil {
		return 0, 0
	}
	return c.below.delivered()
}

// Hold implements h2.Wire: the records of TLS that are written leave together.
func (c *pacedConn) Hold() {
	if c.below != nil {
		c.below.cork()
	}
}

// Release implements h2.Wire.
func (c *pacedConn) Release() error {
	if c.below == nil {
		return nil
	}
	return c.below.uncork()
}

// EnterLarge implements h2.Wire. Nobody knows yet whose request it will be, so that addresses
// take turns.
func (c *pacedConn) EnterLarge() {
	c.turn = c.heads != nil && c.heads.enter(c.ctx, c.from.address)
}

// KeepLarge implements h2.Wire.
func (c *pacedConn) KeepLarge(n int) bool {
	if c.heads == nil || n == c.kept {
		return true
	}
	if !c.heads.keep(c.from.address, n-c.kept) {
		return false
	}
	c.kept = n
	return true
}

// LeaveLarge implements h2.Wire.
func (c *pacedConn) LeaveLarge() {
	if c.turn {
		c.turn = false
		c.heads.turns.leave()
	}
}

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

// Wait implements h2.Wire: it waits until nothing is owed, or for the longest time.
func (c *pacedConn) Wait() {
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
	rate   float64    // of resets, each second
	mu     sync.Mutex // a leaf
	purses map[netip.Addr]*sharedPurse
}

func newAddresses(resets int) *addresses {
	return &addresses{rate: float64(resets), purses: map[netip.Addr]*sharedPurse{}}
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
		s = &sharedPurse{purse: purse{left: a.rate, rate: a.rate, most: resetBurstSeconds * a.rate, at: now}, address: from}
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
