// Package tracing makes OpenTelemetry spans of what a service does and sends them to a
// collector, by OTLP over gRPC. The file given by --tracing-config-file switches it on
// (Kubernetes: TracingConfiguration of apiserver.config.k8s.io); a service without one
// has a nil Provider, whose methods do nothing, and nothing of its way of a request
// passes through this package.
//
// Who samples: a span without a parent is sampled by the file's rate, one with a parent
// as its parent is. Handler decides whether a caller's trace may be that parent. What a
// service does by itself, outside of any request, is not traced: Inner, Transport and
// Start make no span without a parent; Client and Begin do.
//
// Ended spans wait in a queue of maxQueue; what finds no room, or is not taken by the
// collector within exportTimeout, is lost and counted. Nobody ever waits for it.
package tracing
