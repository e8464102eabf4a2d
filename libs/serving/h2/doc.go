// Package h2 serves HTTP/2 (RFC 9113) on connections whose TLS handshake is over. Package serving
// owns the connections and calls ServeConn.
//
// A connection has one goroutine that reads its frames, and each request one for its handler, which
// a response may outlast (response.Last). No goroutine writes: a stream that has something to send
// queues it, and the stream that holds the write token writes the whole queue.
//
//	Server ── ServeConn ─► conn.serve: the reader
//	                         frame ─► headers ─► stream, its handler's goroutine
//	                                  data    ─► body of a request
//	                                  windows ─► streams that wait for them
//	handler ─► response ─► stream.send ─► conn.queue ─► holder of the token ─► Wire
//
// Writing (schedule.go). The queue (backlog.go) holds frames in TLS records. Up to 64 KiB are queued
// before streams wait; short parts, such as events of watches, may take a mebibyte more while the
// connections of the server have not used up their shared allowance. The token is
//
//	free      the queue is empty
//	yielding  a watch has queued its event, and lets the other watches of the connection queue
//	          theirs first; a stream with something urgent takes the token
//	taken     its holder writes; what is queued meanwhile is written before the token is free
//
// A large part is written by its own handler, which waits for the token in a line and writes up to
// 128 KiB from where they are. The queue goes first each time, so that a short response does not
// wait for a long one. release is the only place that passes the token on.
//
// Ending (progress.go). tick checks the timeouts of a connection, checkWindow and checkDeadline
// those of a stream; expire is the only place that resets a stream for its time. Invariants:
//
//   - A connection fails for time only if, for the whole WriteTimeout, bytes were outstanding in the
//     kernel and none was acknowledged, or streams waited for its window and none was. Wire.Delivered
//     counts both; time in which nothing is outstanding never counts.
//   - A PING fails a connection only if no frame came and nothing but the PING was acknowledged.
//   - A stream is reset for time only if its own window stayed closed for its stall timeout after
//     all that it sent was acknowledged, or for its own deadline. Its connection goes on.
//   - Data that are being written are written to the end of their frames before their stream is
//     reset.
//   - A GOAWAY and the begin of a stream exclude each other (conn.mu): a stream that was accepted
//     has begun. A connection that is leaving has no read deadline. It is closed when it has no
//     streams, nothing is queued, all is acknowledged, and linger has passed.
//   - A stream calls its OnClose functions once: when its END_STREAM was written, or it was reset.
//
// Locks: response.mu is taken before conn.mu; body.mu, the locks of contexts and those of OnClose
// functions are leaves below conn.mu. Nothing is written to the wire under conn.mu.
//
// Frames are read and written here; HPACK, the names of frames and their constants are those of
// golang.org/x/net/http2. Priorities are read and not obeyed, nothing is pushed.
package h2
