// Package server holds the filters that every request passes, in one list (chain.go).
// Package routing then finds the handler of a path, package overload limits requests,
// and package telemetry records them. Package build constructs all of them.
package server
