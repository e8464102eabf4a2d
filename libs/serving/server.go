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

	"binnacle/libs/limit"
	"binnacle/libs/serving/conns"
	"binnacle/libs/serving/drain"
	"binnacle/libs/serving/exchange"
	"binnacle/libs/serving/h2"
	"binnacle/libs/serving/health"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/libs/task"
)

const (
	maxHeaderBytes    = conns.DefaultMaxBytes
	idleTimeout       = 90 * time.Second
	readHeaderTimeout = 32 * time.Second
	// longRunningGrace is how long long-running requests may take to end after LongRunningStop.
	longRunningGrace = 5 * time.Second
	// pingAfter is how long an HTTP/2 connection may be silent before the server sends a PING.
	// Kubernetes clients send a PING after 30 s, so the server rarely needs to.
	pingAfter = 45 * time.Second
	// pingTimeout is how long the client may take to acknowledge the PING.
	pingTimeout = 15 * time.Second
	// closeGrace is how long connections without requests may take to close, so that a GOAWAY
	// reaches the client.
	closeGrace = 250 * time.Millisecond
	// deliveryPoll is the interval at which a shutdown checks whether clients have received
	// everything.
	deliveryPoll = 20 * time.Millisecond
)

// Config configures a Server.
type Config struct {
	// Options must be completed and validated.
	Options *Options
	Logger  *slog.Logger
	// Health gets the readyz check "shutdown" when Run starts, after all other checks.
	Health *health.Registry
	// Connection derives the context for the requests of a connection; may be nil.
	Connection func(context.Context, net.Conn) context.Context
	// Clients are the client certificates of the process. Their files are watched, and their
	// expiration is reported like that of the server's own certificates.
	Clients []tlsfiles.Certificate
	// Metrics registers the metrics of the server; may be nil.
	Metrics prometheus.Registerer
	// HandshakeErrors also counts failed TLS handshakes; may be nil.
	HandshakeErrors prometheus.Counter
}

// Server serves HTTPS on one port.
type Server struct {
	options         *Options
	log             *slog.Logger
	health          *health.Registry
	connection      func(context.Context, net.Conn) context.Context
	listener        net.Listener
	tls             *tlsfiles.Server
	certs           []tlsfiles.Certificate
	timeline        *drain.Timeline
	longRunningStop chan struct{}
	limits          *exchange.Limits
	active          *activeConns
	conns           *conns.Listener // set by Run
	connMetrics     *conns.Metrics
	longResponses   *limit.Queue[string]
	largeRequests   *limit.Queue[string]
	headers         *conns.HeaderLimits
}

// NewServer loads the certificates and binds the port. Clients can connect from then on, and are
// served when Run is called. The caller must close a server that it does not run.
func NewServer(config Config) (*Server, error) {
	material, err := tlsfiles.LoadServer(config.Options.tls())
	if err != nil {
		return nil, err
	}
	certs := append(material.Certificates(), config.Clients...)
	if config.Metrics != nil {
		if err := config.Metrics.Register(tlsfiles.ExpiryCollector(certs)); err != nil {
			return nil, fmt.Errorf("register the certificate metrics: %w", err)
		}
	}
	limits, err := exchange.NewLimits(config.Options.StallTimeout, config.Options.RequestTimeout, config.Options.responseTimeout(), config.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register the stall metrics: %w", err)
	}
	connMetrics, err := conns.NewMetrics(config.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register the connection metrics: %w", err)
	}
	connMetrics.Errors = config.HandshakeErrors
	listener, err := conns.Listen(config.Options.BindAddress, config.Options.SecurePort, config.Options.PermitPortSharing,
		config.Options.PermitAddrSharing)
	if err != nil {
		return nil, fmt.Errorf("listen on --bind-address and --secure-port: %w", err)
	}
	permitOptions := limit.Options{Size: max(1, runtime.GOMAXPROCS(0)-1)} // one CPU stays free for small requests
	return &Server{
		limits:          limits,
		active:          &activeConns{conns: map[net.Conn]struct{}{}},
		connMetrics:     connMetrics,
		options:         config.Options,
		log:             config.Logger,
		health:          config.Health,
		connection:      config.Connection,
		listener:        listener,
		tls:             material,
		certs:           certs,
		timeline:        drain.NewTimeline(config.Logger),
		longRunningStop: make(chan struct{}),
		longResponses:   limit.New[string](permitOptions),
		largeRequests:   limit.New[string](permitOptions),
		headers:         conns.NewHeaderLimits(permitOptions.Size),
	}, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Timeline returns the events of a shutdown.
func (s *Server) Timeline() *drain.Timeline { return s.timeline }

// LongRunningStop returns a channel that is closed when long-running requests have to end.
func (s *Server) LongRunningStop() <-chan struct{} { return s.longRunningStop }

// LongResponses returns the limit for encoding and encrypting large responses. It has one permit
// less than there are CPUs, so that one CPU stays free for small responses. A permit is held for
// one piece of a response at a time, and not while the piece is written. The server itself acquires
// permits for encryption, with the network of the client as key.
func (s *Server) LongResponses() *limit.Queue[string] { return s.longResponses }

// LargeRequests returns the limit for processing large requests. It has one permit less than there
// are CPUs. Large header sections have a limit of their own.
func (s *Server) LargeRequests() *limit.Queue[string] { return s.largeRequests }

// ClientCAs returns the current CAs of --client-ca-file, or nil if there is none. The caller must
// not modify the pool.
func (s *Server) ClientCAs() *x509.CertPool {
	if s.tls.ClientCAs() == nil {
		return nil
	}
	return s.tls.ClientCAs().Pool()
}

// VerifyOptions returns the options for verifying a client certificate, and false if no client CA
// is configured.
func (s *Server) VerifyOptions() (x509.VerifyOptions, bool) {
	pool := s.ClientCAs()
	return x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, pool != nil
}

// ClientCABundle returns the bundle of --client-ca-file, or nil.
func (s *Server) ClientCABundle() *tlsfiles.Bundle { return s.tls.ClientCAs() }

// Close releases the port of a server that was not run.
func (s *Server) Close() error { return s.listener.Close() }

// Run serves handler until ctx ends, and then shuts down in the order of the timeline. It returns
// nil after an orderly shutdown. longRunning reports whether a request, such as a watch, ends with
// LongRunningStop; a shutdown waits for all other requests. A nil longRunning is false for all.
func (s *Server) Run(ctx context.Context, handler http.Handler, longRunning func(*http.Request) bool) error {
	s.health.Add("shutdown", s.checkShutdown, health.Readyz)
	g := newGate(handler, longRunning, s.options.ShutdownRetryAfter, s.limits, s.headers)
	server, err := s.httpServer(g)
	if err != nil {
		return err
	}
	s.conns = conns.NewListener(s.listener, server.TLSConfig, s.log, s.connMetrics, s.longResponses, s.headers)
	s.log.Info("serving", "address", s.Addr().String())
	serve := task.Task{Name: "serve", Run: func(ctx context.Context) error {
		return s.serve(ctx, server, g)
	}}
	watch := task.Task{Name: "watch certificate files", Run: func(ctx context.Context) error {
		return tlsfiles.Watch(ctx, s.log, tlsfiles.Sources(s.certs)...)
	}}
	warn := task.Task{Name: "warn of certificate expiry", Run: func(ctx context.Context) error {
		return tlsfiles.WarnOfExpiry(ctx, s.log, s.certs)
	}}
	return task.Around(ctx, serve, watch, warn)
}

// serve serves connections until ctx ends, and then shuts down.
func (s *Server) serve(ctx context.Context, server *http.Server, g *gate) error {
	serveErr := make(chan error, 1)
	go func() {
		serveErr <- server.Serve(s.conns)
	}()
	select {
	case err := <-serveErr:
		return err
	case <-ctx.Done():
	}
	s.shutDown(server, g)
	if err := <-serveErr; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// httpServer returns the HTTP server with the protocols and timeouts of the options.
func (s *Server) httpServer(handler http.Handler) (*http.Server, error) {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!s.options.DisableHTTP2)
	server := &http.Server{ // exchange limits responses
		Handler:           handler,
		ConnContext:       s.connContext,
		ConnState:         s.connState,
		TLSConfig:         s.tls.Config,
		MaxHeaderBytes:    maxHeaderBytes,
		IdleTimeout:       idleTimeout,
		ReadHeaderTimeout: readHeaderTimeout,
		Protocols:         protocols,
		ErrorLog:          log.New(errorLog{s.log}, "", 0),

		DisableGeneralOptionsHandler: true, // the general handler reads a body without a time limit; see gate
	}
	if s.options.DisableHTTP2 {
		return server, nil
	}
	if err := s.serveHTTP2(server); err != nil {
		return nil, fmt.Errorf("--tls-cipher-suites: %w; add one, or set --disable-http2-serving", err)
	}
	return server, nil
}

// connContext adds the connection to the context of its requests.
func (s *Server) connContext(ctx context.Context, conn net.Conn) context.Context {
	ctx = conns.WithConn(ctx, conn)
	if below := conns.BelowTLS(conn); below != nil {
		ctx = exchange.WithConn(ctx, below)
	}
	if s.connection != nil {
		ctx = s.connection(ctx, conn)
	}
	return ctx
}

// serveHTTP2 enables the selected HTTP/2 implementation.
func (s *Server) serveHTTP2(server *http.Server) error {
	if s.options.HTTP2Implementation == http2Standard {
		return http2.ConfigureServer(server, &http2.Server{
			MaxConcurrentStreams: uint32(s.options.MaxHTTP2Streams), IdleTimeout: idleTimeout,
			ReadIdleTimeout: pingAfter, PingTimeout: pingTimeout,
			// A handler sees a frame only when it is complete. Larger frames of a slow client would
			// exceed the timeout of bodies.
			MaxReadFrameSize: 16 << 10,
		})
	}
	return conns.ServeHTTP2(server, h2.Config{
		MaxStreams: s.options.MaxHTTP2Streams, MaxHeaderBytes: maxHeaderBytes, IdleTimeout: idleTimeout,
		PingAfter:       pingAfter,
		PingTimeout:     pingTimeout,
		WriteTimeout:    exchange.ConnPatience * s.options.StallTimeout,
		StallTimeout:    s.options.StallTimeout,
		ResponseTimeout: s.options.responseTimeout(), MinRate: exchange.MinRate, Logger: s.log,
	}, s.options.MaxResetsPerAddress, s.connMetrics, s.headers)
}

// connState tracks active connections, and prepares an idle HTTP/1 connection for its next request.
func (s *Server) connState(c net.Conn, state http.ConnState) {
	s.active.set(c, state == http.StateActive)
	if state == http.StateIdle {
		conns.Idle(c)
	}
}

// checkShutdown is a health check. It fails once a shutdown has started.
func (s *Server) checkShutdown(*http.Request) error {
	if s.timeline.ShutdownInitiated.IsSet() {
		return errors.New("process is shutting down")
	}
	return nil
}

// shutDown performs the steps of a shutdown in the order of the timeline.
func (s *Server) shutDown(server *http.Server, g *gate) {
	start := time.Now()
	timeline := s.timeline
	timeline.ShutdownInitiated.Signal(start)
	if s.options.ShutdownDelay > 0 {
		timer := time.NewTimer(s.options.ShutdownDelay)
		<-timer.C
	}
	timeline.AfterShutdownDelayDuration.Signal(start)

	g.requests.Close()
	closeConnections, cancel := context.WithCancel(context.Background())
	defer cancel()
	closed := make(chan error, 1)
	// With ShutdownRetryAfter, the server keeps accepting until the requests have drained, and
	// answers 429.
	stopListening := func() { closed <- server.Shutdown(closeConnections) }
	if !s.options.ShutdownRetryAfter {
		go stopListening()
	}
	timeline.NotAcceptingNewRequest.Signal(start)
	close(s.longRunningStop)

	if n := g.requests.Wait(drain.Short, s.options.RequestTimeout); n > 0 {
		s.log.Warn("aborting requests after the timeout", "count", n, "timeout", s.options.RequestTimeout)
	}
	grace := max(longRunningGrace, s.options.WatchGrace)
	if n := g.requests.Wait(drain.Long, grace); n > 0 {
		s.log.Warn("aborting long-running requests after the timeout", "count", n, "timeout", grace)
	}
	s.waitForDelivery(g, time.Until(start.Add(s.options.ShutdownDelay+s.options.RequestTimeout)))
	timeline.InFlightRequestsDrained.Signal(start)
	if s.options.ShutdownRetryAfter {
		go stopListening()
	}
	timer := time.AfterFunc(closeGrace, cancel)
	defer timer.Stop()
	if err := <-closed; err != nil {
		// Shutdown does not count connections that never sent a request as idle.
		if err := server.Close(); err != nil {
			s.log.Warn("failed to close connections", "error", err)
		}
	}
	timeline.HTTPServerStoppedListening.Signal(start)
}

// waitForDelivery waits until clients have acknowledged what was sent. Once the process has ended,
// the kernel resets the connection of a client that sends another frame, and the rest of the
// response is lost. The server stops waiting when no client has acknowledged anything for
// exchange.ConnPatience times the stall timeout.
func (s *Server) waitForDelivery(g *gate, atMost time.Duration) {
	tick := time.NewTicker(deliveryPoll)
	defer tick.Stop()
	deadline := time.Now().Add(atMost)
	previous := int64(-1) // bytes acknowledged at lastGrowth
	lastGrowth := time.Now()
	for {
		acknowledged, outstanding := s.conns.Delivered()
		now := time.Now()
		if acknowledged != previous {
			previous = acknowledged
			lastGrowth = now
		}
		switch {
		// A request that outlived its timeout keeps its connection active, which is then not
		// awaited.
		case outstanding == 0 && (s.active.isEmpty() || !g.requests.IsDrained()):
			return
		case now.After(deadline) || now.Sub(lastGrowth) > exchange.ConnPatience*s.options.StallTimeout:
			s.log.Warn("aborting responses that were not delivered", "bytes", outstanding)
			return
		}
		<-tick.C
	}
}

// activeConns holds the HTTP/1 and net/http HTTP/2 connections with a request in progress.
type activeConns struct {
	mu    sync.Mutex // leaf lock
	conns map[net.Conn]struct{}
}

// set adds a connection, or removes it if it is not active.
func (a *activeConns) set(conn net.Conn, active bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if active {
		a.conns[conn] = struct{}{}
		return
	}
	delete(a.conns, conn)
}

func (a *activeConns) isEmpty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.conns) == 0
}

// errorLog forwards net/http's log messages.
type errorLog struct{ log *slog.Logger }

// Write implements io.Writer. p is one message.
func (l errorLog) Write(p []byte) (int, error) {
	l.log.Warn("http server", "message", strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}
