// Package h2 serves HTTP/2 (RFC 9113) on connections whose TLS handshake is done. Package serving
// owns the connections and calls ServeConn.
//
// A connection has one goroutine that reads its frames. Each request has one for its handler, and
// its response may outlive the handler (response.Detach). No goroutine is dedicated to writing: a
// stream queues its frames, and the stream that holds the write token writes the whole queue.
//
//	Server ── ServeConn ─► conn.serve: the reader
//	                         HEADERS       ─► stream, with a goroutine for its handler
//	                         DATA          ─► body of a request
//	                         WINDOW_UPDATE ─► wakes streams that wait for a window
//	handler ─► response ─► stream.send ─► conn.queue ─► holder of the token ─► Wire
//
// Writing (schedule.go). The queue holds encoded frames in buffers of the size of a TLS
// record. A stream waits before it queues more than 64 KiB. Short parts, such as watch events, may
// exceed this by up to 1 MiB, as long as all connections of the server together stay within a
// shared allowance. The write token is in one of these states:
//
//	free      the queue is empty
//	yielding  a watch has queued an event, and yields so that other watches of the connection can
//	          queue events for the same write; a stream with an urgent part takes the token
//	taken     the holder writes; it also writes the frames that are queued in the meantime
//
// A large part is written by its own handler. The handler waits for the token in FIFO order and
// writes up to 128 KiB without copying them to the queue. The queue is written first each time, so
// that a short response does not wait for a long one. Only releaseToken passes the token on.
//
// Timeouts (progress.go). checkTimeouts checks the timeouts of a connection, checkStall and
// checkDeadline check the timeouts of a stream. Only expireStream resets a stream for a timeout.
// Invariants:
//
//   - A connection fails with ErrStalled only if the client acknowledged no byte for the whole
//     WriteTimeout while bytes were outstanding in the kernel or streams waited for the connection
//     window. Wire.Delivered reports acknowledged and outstanding bytes. Time in which the server
//     has nothing to send does not count.
//   - A PING fails a connection only if no frame arrived and nothing but the PING was acknowledged.
//   - A stream is reset for a timeout only if its window stayed closed for the stall timeout after the
//     client acknowledged all its data, or if its deadline has passed. The connection continues.
//   - A DATA frame that is being written is completed before its stream is reset.
//   - Sending a GOAWAY and accepting a stream exclude each other (conn.mu). A stream that was accepted
//     runs. After a GOAWAY the connection has no read deadline. It is closed when it has no streams,
//     the queue is empty, everything is acknowledged, and linger has passed.
//   - A stream calls its OnClose functions once: when its END_STREAM was written, or when it was reset.
//
// Lock order: response.mu, then conn.mu, then body.mu. Canceling a context and calling OnClose
// functions is allowed under conn.mu, writing to the wire is not.
//
// Package h2 reads and writes frames itself. It takes HPACK and the constants from
// golang.org/x/net/http2. It ignores priorities and never pushes.
package h2
