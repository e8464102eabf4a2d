// Package routing finds the handler of a request: Mux by its path, Delegates by the server that has
// its resource. It also has the debug endpoints that need no separate package.
package routing
