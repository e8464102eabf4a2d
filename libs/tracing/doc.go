// Package tracing creates OpenTelemetry spans for the work of a service and sends them to a
// collector, by OTLP over gRPC. The file of --tracing-config-file enables it (Kubernetes:
// TracingConfiguration of apiserver.config.k8s.io). A service without a file has a nil Provider,
// whose methods do nothing, and its requests do not pass through this package.
//
// Sampling: a span without a parent is sampled by the rate in the file, a span with a parent like
// its parent. Handler decides whether the trace of a caller may be that parent. Background work of
// a service, outside of any request, is not traced: Inner, Transport and Start create no span
// without a parent; Client and StartBackground do.
//
// Ended spans wait in a queue of maxQueue. A span is lost and counted if the queue is full, or if
// the collector does not accept it within exportTimeout. Requests never wait for it.
package tracing
