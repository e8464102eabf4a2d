package h2diff_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"binnacle/libs/serving/h2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	maxStreams     = 10
	maxHeaderBytes = 8 << 10
	// streamWindow is the initial receive window of a body.
	streamWindow = 65535
	idleTimeout  = time.Hour
	writeTimeout = 10 * time.Minute
)

// implementation is an HTTP/2 server: ours is package h2, standard is net/http.
type implementation struct {
	name string
	// serve serves one connection. shutdown starts a graceful shutdown. stop waits for the end of
	// the connection, which the client has closed.
	serve func(conn *link, handler http.Handler) (shutdown, stop func())
	// excess bounds, in bytes, how far WINDOW_UPDATE frames may raise the receive window of a
	// connection above its initial size.
	excess int64
}

var implementations = []implementation{
	{name: "ours", serve: serveOurs, excess: 0},
	// net/http counts some bytes twice when a client resets a stream while its handler reads.
	{name: "standard", serve: serveStandard, excess: 1 << 20},
}

// wire implements h2.Wire for a link, without limits.
type wire struct{ *link }

func (wire) ConnectionState() tls.ConnectionState {
	return tls.ConnectionState{Version: tls.VersionTLS13}
}
func (wire) Cork()                    {}
func (wire) Uncork() error            { return nil }
func (wire) FramesReceived(int, int)  {}
func (wire) Throttle()                {}
func (wire) FramesSent(int, int, int) {}
func (wire) AcquireHeaderPermit()     {}
func (wire) ReleaseHeaderPermit()     {}
func (wire) ReserveHeader(int) bool   { return true }

func serveOurs(conn *link, handler http.Handler) (shutdown, stop func()) {
	server := h2.NewServer(h2.Config{
		MaxStreams: maxStreams, MaxHeaderBytes: maxHeaderBytes, IdleTimeout: idleTimeout,
		PingAfter: 2 * idleTimeout, PingTimeout: idleTimeout, WriteTimeout: idleTimeout,
		StallTimeout: writeTimeout, ResponseTimeout: writeTimeout, MinRate: 4 << 10, Logger: slog.New(slog.DiscardHandler),
	})
	var done sync.WaitGroup
	done.Go(func() { server.ServeConn(context.Background(), wire{conn}, handler) })
	return server.Shutdown, done.Wait
}

// serveStandard serves a connection with net/http.
func serveStandard(conn *link, handler http.Handler) (shutdown, stop func()) {
	server := &http.Server{
		Handler: handler, Protocols: new(http.Protocols), MaxHeaderBytes: maxHeaderBytes,
		IdleTimeout: idleTimeout, WriteTimeout: writeTimeout, ErrorLog: log.New(io.Discard, "", 0),
		DisableGeneralOptionsHandler: true, // as in package serving
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: 16 << 10,
			MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connWindow,
		},
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	l := &listener{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- conn
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(l) })
	return func() {
			done.Go(func() { _ = server.Shutdown(context.Background()) })
		}, func() {
			_ = server.Close()
			done.Wait()
		}
}

// listener accepts one connection.
type listener struct {
	conn   chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (*listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }
