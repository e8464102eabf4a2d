// Package serving is the HTTPS front of every service: flags, TLS, a gin
// engine, and a server that shuts down along a written timeline.
//
// A service makes Options, adds their flags, and then goes two steps:
// NewServer loads the certificates and binds the port, so that what the
// handler needs of the server (the stop of long-running requests, the client
// CAs) exists before the handler does; Run serves until its context ends.
//
// A server is in one of these states, each entered through an event of
// Timeline:
//
//	serving
//	  | ShutdownInitiated           /readyz fails by its check "shutdown"
//	delaying                        load balancers take the server out
//	  | AfterShutdownDelayDuration  --shutdown-delay-duration is over
//	  | NotAcceptingNewRequest      new requests are refused, LongRunningStop
//	  |                             tells watches to end
//	draining                        at most the request timeout
//	  | InFlightRequestsDrained     nobody reads caches any more
//	  | HTTPServerStoppedListening
//	stopped
//
// Clients are not waited for without end (exchange.go, progress.go). The next part of a body
// has to come within --stalled-client-timeout. A response ends when the window of its HTTP/2
// stream stays closed for as long, or when its connection acknowledges nothing for twice that;
// waiting for other streams of the connection does not count. A long-running request may be silent
// for as long as it likes. The client of a handler that calls Steady has to read what there is.
//
// Nor may clients use up the CPUs with what is no request: handshakes are computed a
// few at a time (handshakes.go, turns.go), and who floods a connection of HTTP/2 with
// resets or control frames is read slower (frames.go). Large header sections are taken apart
// by turns, and only so much of them is kept until they end (heads.go).
//
// HTTP/2 is served by package h2, or by net/http with --http2-implementation=standard. Long answers
// are encrypted by turns, and leave in parts of many frames (turnconn.go).
//
// An answer that lasts, and of which most of the time there is nothing to tell, may outlast its
// handler (lasting.go): Last, and AtEnd for what others do at the end.
//
// Client certificates are requested but not verified by TLS: an authenticator
// decides what they are worth, with VerifyOptions, on each request.
package serving
