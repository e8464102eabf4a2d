// Package h2 serves HTTP/2 (RFC 9113) on connections whose handshake is over.
//
// A connection has one goroutine that reads its frames, and each request one for its
// handler, which an answer may outlast (answer.Last). Nobody else is woken: who has something to
// send appends it to what is pending for the connection, and whoever comes first writes all that
// is pending.
//
//	Server ── ServeConn ─► conn.serve: the reader
//	                         frame ─► headers ─► stream, its handler's goroutine
//	                                  data    ─► body of a request
//	                                  windows ─► streams that wait for them
//	handler ─► answer ─► stream.send ─► conn.pending ─► whoever has the pen ─► Wire
//
// What is pending (backlog.go) is kept in records of TLS. Up to 64 KiB are pending until who has
// more waits; short parts, such as events of watches, may be a mebibyte more while all of the
// server's connections have not used up what they share for that.
//
// The pen (send.go) is the right to write to the wire. Its states:
//
//	free       nobody writes, nothing is pending
//	yielding   a watch has put its event where it leaves from, and lets the other watches of
//	           the connection put theirs beside it first; who has something urgent takes over
//	held       somebody writes; what others append meanwhile is written before the pen is free
//
// Large parts of an answer are written by their own handler, who waits for the pen in a line,
// frame by frame from where they are. Between two of its frames what is pending goes first, so
// that a short answer does not wait for a long one.
//
// Frames are read and written here; HPACK, the names of frames and their constants are those of
// golang.org/x/net/http2. Priorities are read and not obeyed, nothing is pushed.
//
// Locks: conn.mu is the only one that is held while others are taken, body.mu and those of
// contexts are leaves below it. Nothing is written to the wire under either.
package h2
