// Package audit tells what was done by whom (specification: "Auditing", audit.k8s.io/v1).
//
//	server.audit ─► Trail.Open ─► Record, in the request's context ─► Event ─► Sink
//
// A Record is open from the moment that it is known who asks until the request has
// ended. What happens in between is noted in it by whoever knows: authorization and
// admission annotate, endpoints tell what came, represent tells what is answered. It is
// told to the sinks at each stage that the policy does not leave out. At level None
// there is no record, and all that asks for one is one look into the context. Records are
// written on pages that are used again: one that is over finds that it is another's turn.
//
// Objects are kept as JSON, within Limits: what does not fit is left out and said to be
// (Truncated). Package policy decides how much is told, package backends has the sinks;
// package build joins them. The record belongs to its request; sinks get an Event that
// nobody changes until they have taken it, and that they do not keep.
package audit
