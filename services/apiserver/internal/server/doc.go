// Package server is the front door: the filters that every request passes, in
// one list (chain.go), and the paths that are served (mux.go). The app builds
// it; endpoints, discovery and openapi do the work behind it.
package server
