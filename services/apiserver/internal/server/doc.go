// Package server holds the filters that every request passes, in one list (chain.go),
// and the routing of paths to handlers (mux.go). Package build constructs it. The
// handlers, discovery and OpenAPI documents are behind it.
package server
