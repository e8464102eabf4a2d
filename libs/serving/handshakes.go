package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	// handshakeTimeout is that of client-go: who waits longer is gone.
	handshakeTimeout = 10 * time.Second
	// handshakeShare is the part of the CPUs that handshakes may take, one at least.
	handshakeShare = 4

	notTLS = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
)

// handshakes is a listener of connections that have shaken hands. A handshake costs
// the server far more than the client, so only a few are computed at a time, and
// clients take turns by their addresses. One that waits for its client holds up
// nobody.
type handshakes struct {
	net.Listener
	config  *tls.Config
	log     *slog.Logger
	metrics *clientMetrics
	turns   *turns
	sends   *turns // of long answers, after the handshake
	heads   *heads // of connections of HTTP/1; nil is without bounds

	ctx    context.Context // of all handshakes, until Close
	cancel context.CancelFunc
	done   sync.WaitGroup
	ready  chan accepted
	open   openConns
}

type accepted struct {
	conn net.Conn
	err  error
}

// shakeHands takes what the listener accepts until it is closed.
func shakeHands(l net.Listener, config *tls.Config, log *slog.Logger, m *clientMetrics, answers *turns, heads *heads) *handshakes {
	h := &handshakes{
		Listener: l, config: config, log: log, metrics: m,
		turns: newTurns(max(1, runtime.GOMAXPROCS(0)/handshakeShare)),
		sends: answers, heads: heads,
		ready: make(chan accepted),
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.done.Go(h.run)
	return h
}

// Accept implements net.Listener.
func (h *handshakes) Accept() (net.Conn, error) {
	select {
	case a := <-h.ready:
		return a.conn, a.err
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the handshakes that go on.
func (h *handshakes) Close() error {
	err := h.Listener.Close()
	h.cancel()
	h.done.Wait()
	return err
}

func (h *handshakes) run() {
	for {
		conn, err := h.Listener.Accept()
		switch {
		case err == nil:
			h.done.Go(func() { h.shake(conn) })
		case !h.pass(accepted{err: err}):
			return
		}
	}
}

// pass waits until somebody accepts; false after the end.
func (h *handshakes) pass(a accepted) bool {
	select {
	case h.ready <- a:
		return true
	case <-h.ctx.Done():
		return false
	}
}

func (h *handshakes) shake(raw net.Conn) {
	ctx, cancel := context.WithTimeout(h.ctx, handshakeTimeout)
	defer cancel()
	turn := newTurnConn(ctx, h, raw)
	conn := tls.Server(turn, h.config)
	err := conn.HandshakeContext(ctx)
	turn.finish()
	if err == nil {
		h.open.add(turn)
		h.metrics.shaken.Inc()
		if h.pass(accepted{conn: h.shaken(conn)}) {
			return
		}
		h.open.remove(turn)
	} else {
		h.failed(ctx, raw, err)
	}
	_ = raw.Close()
}

// shaken is the connection as it is served.
func (h *handshakes) shaken(c *tls.Conn) net.Conn {
	if h.heads == nil || c.ConnectionState().NegotiatedProtocol == http2.NextProtoTLS {
		return c
	}
	return newHeadConn(c, h.heads)
}

// failed tells of a handshake; not loudly, as whoever scans ports would fill the log.
func (h *handshakes) failed(ctx context.Context, raw net.Conn, err error) {
	count := h.metrics.failed
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		count = h.metrics.late
	}
	count.Inc()
	if h.metrics.errors != nil {
		h.metrics.errors.Inc()
	}
	var no tls.RecordHeaderError
	if errors.As(err, &no) && no.Conn != nil {
		switch string(no.RecordHeader[:]) {
		case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
			_ = raw.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(raw, notTLS) // the client may be gone
		}
	}
	h.log.Debug("TLS handshake failed", "client", raw.RemoteAddr().String(), "error", err)
}

// remote is where a client comes from.
func remote(c net.Conn) netip.Addr {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return Network(a.AddrPort().Addr())
}

// Network is what an address counts as: of IPv6 its network, as a client has all of that.
func Network(a netip.Addr) netip.Addr {
	from := a.Unmap().WithZone("")
	if from.Is6() {
		if network, err := from.Prefix(64); err == nil {
			from = network.Addr()
		}
	}
	return from
}
