// Package limit bounds what clients may use at a time.
//
//	Queue    a number of units (requests, permits, bytes), shared fairly by key
//	Breaker  the cost of a server that does not respond
//
// The key of a Queue is the principal of a request, or the network of a client that is not
// authenticated yet. A claim that does not fit waits in the queue of its key. Keys are served in
// turn, so that many claims of one key wait for each other. A large claim is bypassed by smaller
// ones of other keys for a bounded number of times.
//
// Callers are libs/serving (handshakes, header sections, large responses), the console (logins) and
// the API server (bodies, large requests, proxied requests, calls of webhooks). All types may be
// used by several goroutines. Their mutexes are leaves of the lock order.
package limit
