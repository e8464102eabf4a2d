// Package routing finds what answers a request: Mux by its path, Delegates by the server that has
// its resource. It also has the debug endpoints that need no package of their own.
package routing
