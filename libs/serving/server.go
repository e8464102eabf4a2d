package serving

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"

	"binnacle/libs/serving/h2"
	"binnacle/libs/serving/health"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/libs/task"
)

const (
	maxHeaderBytes    = 1 << 20
	idleTimeout       = 90 * time.Second
	readHeaderTimeout = 32 * time.Second
	// longRunningGrace is how long a long-running request may take to end
	// after LongRunningStop.
	longRunningGrace = 5 * time.Second
	// pingAfter is how long a connection of HTTP/2 may be silent before its client
	// is asked for a sign of life; clients of Kubernetes ask after 30 s themselves.
	pingAfter = 45 * time.Second
	// pingTimeout is how long it has to give one.
	pingTimeout = 15 * time.Second
	// closeGrace is how long connections may take to close once no request
	// is left on them: the time for a GOAWAY to reach its client.
	closeGrace = 250 * time.Millisecond
	// deliveryPoll is how often a shutdown looks whether clients have everything.
	deliveryPoll = 20 * time.Millisecond
)

// Config of a Server.
type Config struct {
	// Options, completed and validated.
	Options *Options
	Logger  *slog.Logger
	// Health gets the check "shutdown" on /readyz when Run begins, after all
	// others.
	Health *health.Registry
	// LongRunning tells requests that end with LongRunningStop, watches for
	// instance, from those that a shutdown waits for. Nil: there are none.
	LongRunning func(*http.Request) bool
	// Connection gives the requests of a connection a context of their own; may
	// be nil.
	Connection func(context.Context, net.Conn) context.Context
	// Clients are the certificates that the process shows to others. Their files
	// are followed, and their ends told, like those of the server's own.
	Clients []Certificate
	// Metrics gets the ends of all certificates; may be nil.
	Metrics prometheus.Registerer
	// HandshakeErrors counts TLS handshakes that failed, beside Metrics; may be nil.
	HandshakeErrors prometheus.Counter
}

// Server serves HTTPS on one port.
type Server struct {
	o        *Options
	log      *slog.Logger
	health   *health.Registry
	long     func(*http.Request) bool
	conn     func(context.Context, net.Conn) context.Context
	listener net.Listener
	tls      *tlsMaterial
	certs    []Certificate
	timeline *Timeline
	stopLong chan struct{}
	limits   *limits
	active   *activeConns
	open     *openConns // since Run
	clients  *clientMetrics
	answers  *turns
	large    *turns // in which large requests are worked on
	heads    *heads // of large requests, which are short work
}

// NewServer loads the certificates and binds the port. Clients can connect
// from now on, and are answered when Run is called. A server that is not run
// must be closed.
func NewServer(c Config) (*Server, error) {
	material, err := loadTLS(c.Options)
	if err != nil {
		return nil, err
	}
	certs := append(material.certificates(), c.Clients...)
	if c.Metrics != nil {
		if err := c.Metrics.Register(ends(certs)); err != nil {
			return nil, fmt.Errorf("register the ends of certificates: %w", err)
		}
	}
	stalled, err := newStallMetrics(c.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register the counts of stalled clients: %w", err)
	}
	clients, err := newClientMetrics(c.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register the counts of connections: %w", err)
	}
	clients.errors = c.HandshakeErrors
	listener, err := listen(c.Options)
	if err != nil {
		return nil, err
	}
	heads := newHeads(max(1, runtime.GOMAXPROCS(0)-1))
	return &Server{
		limits:   &limits{stall: c.Options.StallTimeout, body: c.Options.RequestTimeout, response: c.Options.responseTimeout(), metrics: stalled, heads: heads},
		active:   newActiveConns(),
		clients:  clients,
		o:        c.Options,
		log:      c.Logger,
		health:   c.Health,
		long:     c.LongRunning,
		conn:     c.Connection,
		listener: listener,
		tls:      material,
		certs:    certs,
		timeline: newTimeline(c.Logger),
		stopLong: make(chan struct{}),
		answers:  newTurns(max(1, runtime.GOMAXPROCS(0)-1)),
		large:    newTurns(max(1, runtime.GOMAXPROCS(0)-1)),
		heads:    heads,
	}, nil
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Timeline returns the events of the shutdown.
func (s *Server) Timeline() *Timeline { return s.timeline }

// LongRunningStop is closed when long-running requests have to end.
func (s *Server) LongRunningStop() <-chan struct{} { return s.stopLong }

// LongAnswers limits the encoding and encryption of long responses to one less than there are CPUs,
// so that one is left for short responses. A permit is held for one piece of a response at a time,
// and not while the piece is written. Client addresses take turns.
func (s *Server) LongAnswers() LongAnswers { return LongAnswers{s.answers} }

// LargeRequests are the turns in which large requests are worked on: one less than there are
// processors. Large headers are read in turns of their own.
func (s *Server) LargeRequests() LargeRequests { return LargeRequests{s.large} }

// ClientCAs returns the CAs of --client-ca-file as they are now, or nil when
// there is none. The caller must not add to them.
func (s *Server) ClientCAs() *x509.CertPool {
	if s.tls.clients == nil {
		return nil
	}
	return s.tls.clients.Pool()
}

// VerifyOptions returns what a client certificate is verified with now; false
// when no client CA is configured.
func (s *Server) VerifyOptions() (x509.VerifyOptions, bool) {
	pool := s.ClientCAs()
	return x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, pool != nil
}

// ClientCABundle returns the bundle of --client-ca-file, or nil.
func (s *Server) ClientCABundle() *tlsfiles.Bundle { return s.tls.clients }

// Close gives the port back. It is for servers that are not run.
func (s *Server) Close() error { return s.listener.Close() }

// Run serves handler until ctx ends, and then walks the timeline to its end.
// The error is nil after an orderly shutdown.
func (s *Server) Run(ctx context.Context, handler http.Handler) error {
	s.health.Add("shutdown", s.checkShutdown, health.Readyz)
	g := newGate(handler, s.long, s.o.ShutdownRetryAfter, s.limits)
	server, err := s.httpServer(g)
	if err != nil {
		return err
	}
	conns := shakeHands(s.listener, server.TLSConfig, s.log, s.clients, s.answers, s.heads)
	s.open = &conns.open
	s.log.Info("serving", "address", s.Addr().String())
	return task.Around(ctx, task.Task{Name: "serve", Run: func(ctx context.Context) error {
		failed := make(chan error, 1)
		go func() {
			failed <- server.Serve(conns)
		}()
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
		}
		s.shutDown(server, g)
		if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}}, task.Task{Name: "follow certificates", Run: func(ctx context.Context) error {
		return tlsfiles.Watch(ctx, s.log, sources(s.certs)...)
	}}, task.Task{Name: "ends of certificates", Run: func(ctx context.Context) error {
		return warnOfEnds(ctx, s.log, s.certs)
	}})
}

func (s *Server) httpServer(handler http.Handler) (*http.Server, error) {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!s.o.DisableHTTP2)
	server := &http.Server{ // responses are bounded by exchange
		Handler:           handler,
		ConnContext:       s.connContext,
		ConnState:         s.connState,
		TLSConfig:         s.tls.base,
		MaxHeaderBytes:    maxHeaderBytes,
		IdleTimeout:       idleTimeout,
		ReadHeaderTimeout: readHeaderTimeout,
		Protocols:         protocols,
		ErrorLog:          log.New(errorLog{s.log}, "", 0),

		DisableGeneralOptionsHandler: true, // which waits for a body without end; see gate
	}
	if s.o.DisableHTTP2 {
		return server, nil
	}
	if err := s.serveHTTP2(server); err != nil {
		return nil, fmt.Errorf("--tls-cipher-suites: %w; add one, or set --disable-http2-serving", err)
	}
	return server, nil
}

// connContext lets the answers of a connection find it.
func (s *Server) connContext(ctx context.Context, c net.Conn) context.Context {
	if h, ok := c.(*headConn); ok {
		ctx = context.WithValue(ctx, headKey{}, h)
	}
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		if below, ok := t.NetConn().(*turnConn); ok {
			ctx = context.WithValue(ctx, belowKey{}, below)
		}
	}
	if s.conn != nil {
		ctx = s.conn(ctx, c)
	}
	return ctx
}

// serveHTTP2 has the server speak HTTP/2.
func (s *Server) serveHTTP2(server *http.Server) error {
	if s.o.HTTP2Implementation == http2Standard {
		return http2.ConfigureServer(server, &http2.Server{
			MaxConcurrentStreams: uint32(s.o.MaxHTTP2Streams), IdleTimeout: idleTimeout,
			ReadIdleTimeout: pingAfter, PingTimeout: pingTimeout,
			// A handler sees nothing of a frame before its end. Larger frames of a slow client
			// would exceed the time-out of bodies.
			MaxReadFrameSize: 16 << 10,
		})
	}
	return serveHTTP2(server, h2.Config{
		MaxStreams: s.o.MaxHTTP2Streams, MaxHeaderBytes: maxHeaderBytes, IdleTimeout: idleTimeout,
		PingAfter: pingAfter, PingTimeout: pingTimeout, WriteTimeout: connPatience * s.o.StallTimeout, StallTimeout: s.o.StallTimeout,
		ResponseTimeout: s.o.responseTimeout(), MinRate: minRate, Logger: s.log,
	}, s.o.MaxResetsPerAddress, s.clients, s.heads)
}

// connState tells a connection of HTTP/1 that another request may come.
func (s *Server) connState(c net.Conn, state http.ConnState) {
	s.active.set(c, state == http.StateActive)
	if h, ok := c.(*headConn); ok && state == http.StateIdle {
		h.begin()
	}
}

func (s *Server) checkShutdown(*http.Request) error {
	if s.timeline.ShutdownInitiated.Happened() {
		return errors.New("process is shutting down")
	}
	return nil
}

func (s *Server) shutDown(server *http.Server, g *gate) {
	begin := time.Now()
	t := s.timeline
	t.ShutdownInitiated.signal(begin)
	if s.o.ShutdownDelay > 0 {
		timer := time.NewTimer(s.o.ShutdownDelay)
		<-timer.C
	}
	t.AfterShutdownDelayDuration.signal(begin)

	g.close()
	closeConnections, cancel := context.WithCancel(context.Background())
	defer cancel()
	closed := make(chan error, 1)
	stopListening := func() { closed <- server.Shutdown(closeConnections) }
	if !s.o.ShutdownRetryAfter {
		go stopListening()
	}
	t.NotAcceptingNewRequest.signal(begin)
	close(s.stopLong)

	if n := g.wait(short, s.o.RequestTimeout); n > 0 {
		s.log.Warn("requests are cut off", "count", n, "timeout", s.o.RequestTimeout)
	}
	grace := max(longRunningGrace, s.o.WatchGrace)
	if n := g.wait(long, grace); n > 0 {
		s.log.Warn("long-running requests are cut off", "count", n, "timeout", grace)
	}
	s.waitForDelivery(g, time.Until(begin.Add(s.o.ShutdownDelay+s.o.RequestTimeout)))
	t.InFlightRequestsDrained.signal(begin)
	if s.o.ShutdownRetryAfter {
		go stopListening()
	}
	timer := time.AfterFunc(closeGrace, cancel)
	defer timer.Stop()
	if err := <-closed; err != nil {
		// Connections that never sent a request are not idle to Shutdown.
		if err := server.Close(); err != nil {
			s.log.Warn("closing connections", "error", err)
		}
	}
	t.HTTPServerStoppedListening.signal(begin)
}

// waitForDelivery waits until clients have acknowledged what was sent: once the process ends, a
// client that sends another frame loses the rest. It gives up once no client has taken anything for
// the timeout of a connection.
func (s *Server) waitForDelivery(g *gate, atMost time.Duration) {
	tick := time.NewTicker(deliveryPoll)
	defer tick.Stop()
	end := time.Now().Add(atMost)
	last, grew := int64(-1), time.Now()
	for {
		acknowledged, outstanding := s.open.delivered()
		now := time.Now()
		if acknowledged != last {
			last, grew = acknowledged, now
		}
		switch {
		case outstanding == 0 && (s.active.none() || !g.isDrained()):
			return
		case now.After(end) || now.Sub(grew) > connPatience*s.o.StallTimeout:
			s.log.Warn("responses are cut off", "bytes", outstanding)
			return
		}
		<-tick.C
	}
}

// activeConns are the connections of HTTP/1 and of net/http's HTTP/2 on which a request is not over.
type activeConns struct {
	mu    sync.Mutex // a leaf
	conns map[net.Conn]struct{}
}

func newActiveConns() *activeConns { return &activeConns{conns: map[net.Conn]struct{}{}} }

func (a *activeConns) set(c net.Conn, active bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if active {
		a.conns[c] = struct{}{}
		return
	}
	delete(a.conns, c)
}

func (a *activeConns) none() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.conns) == 0
}

// errorLog takes what net/http logs.
type errorLog struct{ log *slog.Logger }

func (l errorLog) Write(p []byte) (int, error) {
	l.log.Warn("http server", "message", strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}
