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

// Config of a Server.
type Config struct {
	// MaxStreams is how many streams a client may have open at a time.
	MaxStreams int
	// MaxHeaderBytes is the size that header fields of a request may have, in bytes; beyond
	// it the answer is 431.
	MaxHeaderBytes int
	// IdleTimeout is how long a connection may be without a request.
	IdleTimeout time.Duration
	// PingAfter is how long a client may be silent until it is asked for a sign of life,
	// which has to come within PingTimeout.
	PingAfter, PingTimeout time.Duration
	// WriteTimeout is how long a connection may acknowledge nothing of what is sent to it before
	// it is closed.
	WriteTimeout time.Duration
	// StallTimeout is how long the flow-control window of a stream may stay closed, once the
	// client has what was sent, before the stream is reset. SetStallTimeout changes it.
	StallTimeout time.Duration
	// ResponseTimeout bounds a response from when its request came. After it the response goes
	// on only while the connection takes MinRate. SetWriteDeadline replaces it. 0 is no bound.
	ResponseTimeout time.Duration
	// MinRate is what a connection has to take of responses that last longer than
	// ResponseTimeout, in bytes a second, over each WriteTimeout.
	MinRate int64
	Logger  *slog.Logger
}

// Wire is what frames are read from and written to: a connection of TLS, and what is to be
// done about a client that floods it.
type Wire interface {
	net.Conn
	ConnectionState() tls.ConnectionState
	// Hold has what is written until Release leave together.
	Hold()
	Release() error
	// Delivered returns how many bytes of the connection its peer has acknowledged, and how many
	// the system has accepted beyond these. It must not block.
	Delivered() (acknowledged, outstanding int64)
	// Came counts frames of the client that reset streams, and those that neither ask nor send
	// anything to speak of. Wait is called before more is read.
	Came(resets, control int)
	Wait()
	// Sent counts streams that were reset here, frames of data, and bytes that were written.
	Sent(resets, frames, bytes int)
	// EnterLarge waits until large headers may be read; LeaveLarge ends it.
	EnterLarge()
	LeaveLarge()
	// KeepLarge tells how many bytes a large list of header fields takes whose end has not come, 0
	// when it has; false when that is more than may be kept.
	KeepLarge(n int) bool
}

// Server serves connections until Shutdown.
type Server struct {
	config Config
	dated  atomic.Pointer[dated]
	extra  allowance

	mu       sync.Mutex // before those of connections
	conns    map[*conn]struct{}
	stopping bool
}

// NewServer returns a server without connections.
func NewServer(c Config) *Server {
	return &Server{config: c, conns: map[*conn]struct{}{}}
}

// ServeConn serves a connection, and returns when it is closed and nothing reads it any more.
// Handlers may go on for a while; their contexts, which are made of ctx, have ended.
func (s *Server) ServeConn(ctx context.Context, w Wire, handler http.Handler) {
	c := newConn(ctx, s, w, handler)
	defer s.remove(c)
	c.serve()
}

// Shutdown tells all clients to go elsewhere with what is new. A connection is closed when its
// last stream is.
func (s *Server) Shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for c := range s.conns {
		c.goAway()
	}
}

// add keeps a connection; false when it is to end at once.
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
