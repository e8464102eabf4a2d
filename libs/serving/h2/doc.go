// Package h2 serves HTTP/2 (RFC 9113) on connections whose TLS handshake is done. Package serving
// owns the connections and calls ServeConn.
//
// A connection has one goroutine that reads its frames. Each request has one for its handler, and
// its response may outlive the handler (response.Detach). No goroutine is dedicated to writing: a
// stream queues what it sends, and the stream that holds the write token writes the whole queue.
//
//	Server ── ServeConn ─► conn.serve: the reader
//	                         frame ─► headers ─► stream, its handler's goroutine
//	                                  data    ─► body of a request
//	                                  windows ─► streams that wait for them
//	handler ─► response ─► stream.send ─► conn.queue ─► holder of the token ─► Wire
//
// Writing (schedule.go). The queue holds frames in TLS records. Up to 64 KiB are queued
// before streams wait. Short parts, such as watch events, may take up to 1 MiB more while the
// connections of the server have not used up their shared allowance. The token is in one of these
// states:
//
//	free      the queue is empty
//	yielding  a watch has queued its event, and lets the other watches of the connection queue
//	          theirs first; a stream with something urgent takes the token
//	taken     its holder writes; frames queued during the write follow before it is free
//
// A large part is written by its own handler. The handler waits for the token in FIFO order and
// writes up to 128 KiB without copying them to the queue. The queue is written first each time, so
// that a short response does not wait for a long one. Only release passes the token on.
//
// Timeouts (progress.go). tick checks the timeouts of a connection. checkWindow and checkDeadline
// check those of a stream. Only expire resets a stream for a timeout. Invariants:
//
//   - A connection fails for a timeout only if, for the whole WriteTimeout, bytes were outstanding in the
//     kernel and none was acknowledged, or streams waited for its window and none was. Wire.Delivered
//     reports both. Time in which nothing is outstanding does not count.
//   - A PING fails a connection only if no frame arrived and nothing but the PING was acknowledged.
//   - A stream is reset for a timeout only if its own window stayed closed for its stall timeout after
//     all that it sent was acknowledged, or for its own deadline. The connection continues.
//   - DATA frames that are being written are completed before their stream is reset.
//   - Sending a GOAWAY and accepting a stream exclude each other (conn.mu). A stream that was accepted
//     runs. A connection that is leaving has no read deadline. It is closed when it has no streams,
//     nothing is queued, everything is acknowledged, and linger has passed.
//   - A stream calls its OnClose functions once: when its END_STREAM was written, or when it was reset.
//
// Locks: response.mu is taken before conn.mu; body.mu, the locks of contexts and those of OnClose
// functions are leaves below conn.mu. Nothing is written to the wire under conn.mu.
//
// Package h2 reads and writes frames itself. HPACK and the constants are those of
// golang.org/x/net/http2. PRIORITY frames are ignored. The server pushes nothing.
package h2
