package conns

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"binnacle/libs/limit"
)

const (
	// handshakeTimeout is the TLS handshake timeout of client-go.
	handshakeTimeout = 10 * time.Second
	// handshakeShare is the divisor for the CPUs that handshakes may use. At least one CPU is used.
	handshakeShare = 4
	// handshakeGrace is how long handshakes in progress may continue after Close. A client that has
	// finished its part may have sent requests. Once the handshake is finished, an HTTP/2 client
	// gets a GOAWAY; net/http closes the connection of an HTTP/1 client.
	handshakeGrace = 2 * time.Second

	plainHTTPResponse = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
)

// Listener is a listener whose Accept returns connections with a finished TLS handshake. A
// handshake costs the server far more than the client, so only a few are computed at a time, shared
// fairly by address. A handshake that waits for its client holds no permit. After Close, handshakes
// in progress have handshakeGrace to finish; Close does not wait for them.
type Listener struct {
	net.Listener
	config           *tls.Config
	log              *slog.Logger
	metrics          *Metrics
	handshakeLimiter *limit.Queue[string]
	sendLimiter      *limit.Queue[string] // for large responses, after the handshake
	headers          *HeaderLimits        // for HTTP/1 connections; nil for no limits

	ctx           context.Context // ends all handshakes; canceled when the last one has ended after Close
	cancel        context.CancelFunc
	handshakes    sync.WaitGroup
	acceptResults chan acceptResult
	openConns     openConns
}

// acceptResult is a result of Accept.
type acceptResult struct {
	conn net.Conn
	err  error
}

// NewListener accepts connections from l until l is closed.
func NewListener(l net.Listener, config *tls.Config, log *slog.Logger, m *Metrics, sendLimiter *limit.Queue[string],
	headers *HeaderLimits) *Listener {
	listener := &Listener{
		Listener: l, config: config, log: log, metrics: m,
		handshakeLimiter: limit.New[string](limit.Options{Size: max(1, runtime.GOMAXPROCS(0)/handshakeShare)}),
		sendLimiter:      sendLimiter, headers: headers,
		acceptResults: make(chan acceptResult),
	}
	listener.ctx, listener.cancel = context.WithCancel(context.Background())
	go listener.acceptConns()
	return listener
}

// Accept implements net.Listener. After Close it returns the connections whose handshakes were in
// progress, then net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.acceptResults:
		return a.conn, a.err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// acceptConns accepts connections and starts their handshakes until the listener is closed.
func (l *Listener) acceptConns() {
	for {
		conn, err := l.Listener.Accept()
		switch {
		case err == nil:
			l.handshakes.Go(func() { l.handshake(conn) })
		case errors.Is(err, net.ErrClosed):
			timer := time.AfterFunc(handshakeGrace, l.cancel)
			defer timer.Stop()
			l.handshakes.Wait()
			l.cancel()
			return
		case !l.passToAccept(acceptResult{err: err}):
			return
		}
	}
}

// passToAccept passes a connection or an error to Accept. It returns false when the handshakes have
// ended.
func (l *Listener) passToAccept(a acceptResult) bool {
	select {
	case l.acceptResults <- a:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// handshake performs the TLS handshake of a connection and passes the connection to Accept.
func (l *Listener) handshake(raw net.Conn) {
	ctx, cancel := context.WithTimeout(l.ctx, handshakeTimeout)
	defer cancel()
	limited := newConn(ctx, l, raw)
	conn := tls.Server(limited, l.config)
	err := conn.HandshakeContext(ctx)
	limited.finishHandshake()
	if err == nil {
		l.openConns.add(limited)
		l.metrics.succeeded.Inc()
		if l.passToAccept(acceptResult{conn: l.limitHeaders(conn)}) {
			return
		}
		l.openConns.remove(limited)
	} else {
		l.recordFailure(ctx, raw, err)
	}
	_ = raw.Close()
}

// limitHeaders returns the connection that the server uses: HTTP/1 connections limit their header
// sections.
func (l *Listener) limitHeaders(c *tls.Conn) net.Conn {
	if l.headers == nil || c.ConnectionState().NegotiatedProtocol == http2.NextProtoTLS {
		return c
	}
	return newHeaderConn(c, l.headers)
}

// recordFailure counts a failed handshake. It logs at debug level, because port scanners would fill
// the log.
func (l *Listener) recordFailure(ctx context.Context, raw net.Conn, err error) {
	counter := l.metrics.failed
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		counter = l.metrics.timedOut
	}
	counter.Inc()
	if l.metrics.Errors != nil {
		l.metrics.Errors.Inc()
	}
	var notTLSErr tls.RecordHeaderError
	if errors.As(err, &notTLSErr) && notTLSErr.Conn != nil {
		switch string(notTLSErr.RecordHeader[:]) {
		case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
			_ = raw.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(raw, plainHTTPResponse) // the client may be gone
		}
	}
	l.log.Debug("TLS handshake failed", "client", raw.RemoteAddr().String(), "error", err)
}

// Delivered returns the number of bytes that clients have acknowledged, and of those that they have
// not acknowledged yet, over all connections.
func (l *Listener) Delivered() (acknowledged, outstanding int64) { return l.openConns.delivered() }

// openConns holds the connections from the end of their handshake until they are closed. The zero
// value is empty.
type openConns struct {
	mu    sync.Mutex // leaf lock
	conns map[*Conn]struct{}
}

func (o *openConns) add(conn *Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conns == nil {
		o.conns = map[*Conn]struct{}{}
	}
	o.conns[conn] = struct{}{}
}

func (o *openConns) remove(c *Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.conns, c)
}

// delivered returns the number of bytes that clients have acknowledged, and of those that they have
// not acknowledged yet, over all connections.
func (o *openConns) delivered() (acknowledged, outstanding int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.conns {
		a, n := c.Delivered()
		acknowledged, outstanding = acknowledged+a, outstanding+n
	}
	return acknowledged, outstanding
}
