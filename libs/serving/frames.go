package serving

import (
	"context"
	"crypto/tls"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// What a connection of HTTP/2 may do besides asking and reading. Clients that cancel
// hundreds of watches, or take hundreds of megabytes, stay far below.
const (
	resetRate, resetBurst, resetStart       = 200, 2000, 200
	controlRate, controlBurst, controlStart = 2000, 20_000, 2000
	// paidBytes of an answer pay for a control frame: who reads much sends many
	// WINDOW_UPDATEs.
	paidBytes = 256
	// smallData is a part of a body that does not pay for its frame.
	smallData = 64
	// longestDelay bounds one delay; what is owed stays owed.
	longestDelay = time.Second
)

// serveHTTP2 has the server speak HTTP/2 through connections whose frames are counted.
func serveHTTP2(server *http.Server, m *clientMetrics) error {
	h2 := &http2.Server{}
	if err := http2.ConfigureServer(server, h2); err != nil {
		return err
	}
	server.TLSNextProto[http2.NextProtoTLS] = func(hs *http.Server, c *tls.Conn, h http.Handler) {
		ctx := context.Background()
		if b, ok := h.(interface{ BaseContext() context.Context }); ok { // that of the connection
			ctx = b.BaseContext()
		}
		h2.ServeConn(newPacedConn(c, m), &http2.ServeConnOpts{Context: ctx, Handler: h, BaseConfig: hs})
	}
	return nil
}

// pacedConn reads slower from a client that resets streams, or sends frames that ask
// for nothing, faster than any good client does: it has to wait itself, and nobody
// else. A young connection may do less at a time than an old one, so that nothing is
// won by a new one.
type pacedConn struct {
	*tls.Conn
	metrics *clientMetrics
	in, out frames // of the one that reads and of the one that writes
	closed  chan struct{}
	close   sync.Once

	mu              sync.Mutex // a leaf
	resets, control purse
}

func newPacedConn(c *tls.Conn, m *clientMetrics) *pacedConn {
	now := time.Now()
	return &pacedConn{
		Conn: c, metrics: m, closed: make(chan struct{}),
		in:      frames{skip: len(http2.ClientPreface)},
		resets:  purse{left: resetStart, rate: resetRate, most: resetBurst, at: now},
		control: purse{left: controlStart, rate: controlRate, most: controlBurst, at: now},
	}
}

// Read implements net.Conn.
func (c *pacedConn) Read(p []byte) (int, error) {
	c.delay()
	n, err := c.Conn.Read(p)
	if resets, control := c.in.count(p[:n]); resets+control > 0 {
		c.mu.Lock()
		c.resets.left -= float64(resets)
		c.control.left -= float64(control)
		c.mu.Unlock()
	}
	return n, err
}

// Write implements net.Conn. Streams that the server resets are the client's fault
// too, or nearly.
func (c *pacedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	resets, _ := c.out.count(p[:n])
	c.mu.Lock()
	c.resets.left -= float64(resets)
	c.control.left = min(c.control.most, c.control.left+float64(n)/paidBytes)
	c.mu.Unlock()
	return n, err
}

// Close implements net.Conn.
func (c *pacedConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// delay waits until nothing is owed, or for the longest time.
func (c *pacedConn) delay() {
	c.mu.Lock()
	var owed time.Duration
	counter := c.metrics.resets
	if c.resets.left < 0 || c.control.left < 0 {
		now := time.Now()
		owed = c.resets.owed(now)
		if d := c.control.owed(now); d > owed {
			owed, counter = d, c.metrics.control
		}
	}
	c.mu.Unlock()
	if owed <= 0 {
		return
	}
	owed = min(owed, longestDelay)
	counter.Add(owed.Seconds())
	timer := time.NewTimer(owed)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
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
}

// count returns how many frames reset a stream, and how many neither ask nor send
// anything to speak of, of those whose headers end in p.
func (f *frames) count(p []byte) (resets, control int) {
	for len(p) > 0 {
		if n := min(f.skip, len(p)); n > 0 {
			f.skip -= n
			p = p[n:]
			continue
		}
		n := copy(f.head[f.have:], p)
		p = p[n:]
		if f.have += n; f.have < len(f.head) {
			return resets, control
		}
		f.have, f.skip = 0, int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2])
		switch http2.FrameType(f.head[3]) {
		case http2.FrameHeaders:
		case http2.FrameRSTStream:
			resets++
		case http2.FrameData:
			if f.skip < smallData {
				control++
			}
		default:
			control++
		}
	}
	return resets, control
}
