// Package serving is the HTTPS front of every service. It provides flags, TLS, a gin engine, and a
// server with an orderly shutdown.
//
// A service creates Options, adds their flags, and then takes two steps. NewServer loads the
// certificates and binds the port, so that the handler can use the server's client CAs and its stop
// signal for long-running requests. Run serves until its context ends.
//
// A server is in one of these states. Each transition is an event of Timeline:
//
//	serving
//	  | ShutdownInitiated           /readyz fails by its check "shutdown"
//	delaying                        load balancers take the server out
//	  | AfterShutdownDelayDuration  --shutdown-delay-duration is over
//	  | NotAcceptingNewRequest      new requests are refused, LongRunningStop
//	  |                             is closed and watches end
//	draining                        at most the request timeout
//	  | InFlightRequestsDrained     no request reads the caches any more
//	  | HTTPServerStoppedListening
//	stopped
//
// Every wait for a client is bounded (exchange.go, progress.go). The next part of a body has to
// arrive within --stalled-client-timeout. A response ends when the window of its HTTP/2 stream stays
// closed for that time, or when its connection acknowledges nothing for twice that time. Waiting for
// other streams of the connection does not count. A long-running request may be silent for any time.
// If its handler calls LimitStall, its client has to read what was sent.
//
// Work outside requests is limited too. Only a few handshakes are computed at a time (handshakes.go,
// limiter.go). A client that floods an HTTP/2 connection with resets or control frames is read more
// slowly (pacing.go). The number of large header sections that are parsed at a time is limited, and
// so are their bytes in memory (headers.go).
//
// HTTP/2 is served by package h2, or by net/http with --http2-implementation=standard. Encryption of
// large responses needs a permit, and several records leave in one write (limitedconn.go).
//
// A response that is idle most of the time, such as a watch, may outlive its handler (detached.go).
// Detach detaches it, and AtEnd registers what filters do when it ends.
//
// TLS requests client certificates and does not verify them. An authenticator verifies them on each
// request with VerifyOptions.
package serving
