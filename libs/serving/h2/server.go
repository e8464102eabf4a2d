package h2

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a Server.
type Config struct {
	// MaxStreams is the number of streams that a client may have open at a time.
	MaxStreams int
	// MaxHeaderBytes limits the header fields of a request in bytes. Larger requests get 431.
	MaxHeaderBytes int
	// IdleTimeout is the time for which a connection may have no request.
	IdleTimeout time.Duration
	// PingAfter is how long a client may be silent before the server sends a PING. The client must
	// acknowledge it within PingTimeout.
	PingAfter, PingTimeout time.Duration
	// WriteTimeout is how long a connection may acknowledge none of the outstanding bytes before it
	// is closed.
	WriteTimeout time.Duration
	// StallTimeout is how long the flow-control window of a stream may stay closed, once the client
	// has received what was sent, before the stream is reset. A call of SetStallTimeout changes it.
	StallTimeout time.Duration
	// ResponseTimeout is the time since the start of the request after which a response continues
	// only while the connection acknowledges MinRate. A call of SetWriteDeadline replaces it. 0
	// means no limit.
	ResponseTimeout time.Duration
	// MinRate is the rate in bytes per second, measured over each WriteTimeout, that a connection
	// must acknowledge for responses that last longer than ResponseTimeout.
	MinRate int64
	// Logger receives panics of handlers and, at level debug, protocol errors of clients.
	Logger *slog.Logger
}

// Wire is a TLS connection that also limits floods and reports delivery.
type Wire interface {
	net.Conn
	ConnectionState() tls.ConnectionState
	// Cork holds written bytes until Uncork, which sends them in one write below TLS.
	Cork()
	Uncork() error
	// Delivered returns the number of bytes that the peer has acknowledged, and the number of bytes
	// that the kernel has accepted beyond these. It must not block.
	Delivered() (acknowledged, outstanding int64)
	// FramesReceived counts RST_STREAM frames, and other control frames. A control frame neither
	// starts a request nor carries data.
	FramesReceived(resets, control int)
	// Throttle is called before each read. It sleeps if the client floods the server.
	Throttle()
	// FramesSent counts streams that the server reset, DATA frames, and written bytes.
	FramesSent(resets, frames, bytes int)
	// AcquireHeaderPermit waits for a permit to decode large header blocks. ReleaseHeaderPermit
	// returns it.
	AcquireHeaderPermit()
	ReleaseHeaderPermit()
	// ReserveHeader sets the number of bytes reserved for an unfinished header block, and 0 once it
	// is complete. It returns false if they are not available.
	ReserveHeader(n int) bool
}

// Server serves connections until Shutdown.
type Server struct {
	config     Config
	cachedDate atomic.Pointer[dateValue]
	extra      allowance

	mu       sync.Mutex // acquired before conn.mu
	conns    map[*conn]struct{}
	stopping bool
}

// NewServer returns a server without connections.
func NewServer(c Config) *Server {
	return &Server{config: c, conns: map[*conn]struct{}{}}
}

// ServeConn serves a connection. It returns when the connection is closed and no longer read.
// Handlers may still run; their contexts, which derive from ctx, are canceled.
func (s *Server) ServeConn(ctx context.Context, w Wire, handler http.Handler) {
	c := newConn(ctx, s, w, handler)
	defer s.remove(c)
	c.serve()
}

// Shutdown sends a GOAWAY on all connections. A connection is closed when its last stream is.
func (s *Server) Shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for c := range s.conns {
		c.goAway()
	}
}

// add registers a connection. It returns false during a shutdown.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
	return !s.stopping
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// dateHeader returns the current value of the Date field.
func (s *Server) dateHeader() string {
	now := time.Now()
	if d := s.cachedDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &dateValue{second: now.Unix(), text: now.UTC().Format(http.TimeFormat)}
	s.cachedDate.Store(d)
	return d.text
}

// dateValue is the Date header of a second.
type dateValue struct {
	second int64
	text   string
}

// isForbiddenCipher reports whether HTTP/2 forbids the TLS state: anything below TLS 1.2, and TLS
// 1.2 without ephemeral keys and authenticated encryption (RFC 9113, "Prohibited TLS 1.2 Cipher
// Suites").
func isForbiddenCipher(connectionState *tls.ConnectionState) bool {
	if connectionState.Version >= tls.VersionTLS13 {
		return false
	}
	switch connectionState.CipherSuite {
	case tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
		return connectionState.Version < tls.VersionTLS12
	}
	return true
}
