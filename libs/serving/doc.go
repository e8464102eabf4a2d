// Package serving contains the HTTPS server of every service: flags, TLS, a gin engine, and an
// orderly shutdown.
//
// A service creates Options, adds their flags, and then takes two steps. NewServer loads the
// certificates and binds the port, so that the handler can use the server's client CAs and its stop
// signal for long-running requests. Run serves until its context ends.
//
// A server is in one of these states. Each transition is an event of Timeline:
//
//	serving
//	  | ShutdownInitiated           the check "shutdown" makes /readyz fail
//	delaying                        load balancers stop sending requests
//	  | AfterShutdownDelayDuration  --shutdown-delay-duration is over
//	  | NotAcceptingNewRequest      new requests are rejected, LongRunningStop
//	  |                             is closed and watches end
//	draining                        at most the request timeout
//	  | InFlightRequestsDrained     no request reads the caches any more
//	  | HTTPServerStoppedListening
//	stopped
//
// Other packages own the parts:
//
//	conns     connections: handshakes, floods, header sections
//	exchange  one request and its response: stalled clients, responses that outlive their handler
//	drain     the events of a shutdown and the requests that it waits for
//	tlsfiles  certificates: loading, reloading, selection, expiry
//	h2        HTTP/2
//	health    the health endpoints
//	metrics   the metrics endpoint
//
// HTTP/2 is served by package h2, or by net/http with --http2-implementation=standard. Encryption
// of large responses needs a permit, and several records leave in one write (package conns).
//
// TLS requests client certificates and does not verify them. An authenticator verifies them on each
// request with VerifyOptions.
package serving
