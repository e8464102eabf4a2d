// Package audit records audit events of requests (specification: "Auditing", audit.k8s.io/v1).
//
//	audit filter ─► Auditor.Open ─► Record, in the request's context ─► Event ─► Sink
//
// A Record is open from authentication until the request has ended. Other packages add to it:
// authorization and admission add annotations, handlers add the request object, and response
// writers add the response object. The auditor emits an event to the sinks at each stage that the
// policy does not omit. At level None there is no record, and a lookup of it costs one context
// access. The state of a record is pooled. Calls on an ended record have no effect.
//
// Objects are kept as JSON. Objects above MaxObject or beyond the budget MaxObjects are omitted,
// and the event has the annotation Truncated. Package policy decides the level, package backends
// has the sinks, and package build connects them. An Event does not change while a sink processes
// it. Sinks must not keep it.
package audit
