// Package exchange aborts a request or a response whose client stalls, and lets a response outlive
// its handler.
//
// Every wait for a client is bounded. The next part of a body has to arrive within the stall
// timeout. A response ends when the window of its HTTP/2 stream stays closed for that time, or when
// its connection acknowledges nothing for ConnPatience times that time (progress.go). Waiting for
// other streams of the connection does not count. A long-running request may be silent for any
// time. If its handler calls LimitStall, its client has to read what was sent. OnSlowWrite lets a
// handler release resources while its client reads nothing.
//
// A response that is idle most of the time, such as a watch, may outlive its handler (detached.go).
// Detach detaches it, and AtEnd registers what filters do when it ends.
//
// Package serving starts an Exchange for each request. Handlers and filters reach it through the
// response writer, which may wrap it. An Exchange belongs to the goroutine of its request.
package exchange
