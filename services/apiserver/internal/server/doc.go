// Package server holds the filters that every request passes, in one list (chain.go).
// Package routing then finds the handler of a path, and package telemetry records the
// request. Package build constructs all of them.
package server
