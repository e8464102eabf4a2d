// Package telemetry records requests: metrics and the access log, the log of slow requests, and
// spans. Package server puts its filters into the chain.
package telemetry
