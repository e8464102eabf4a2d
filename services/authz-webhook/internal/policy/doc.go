// Package policy follows, at the API server, the objects that decisions depend on: roles and
// bindings, and for the node authorizer pods, volumes, attachments and resource slices. It passes
// them to the engines and keeps no objects of its own.
//
// # States of a resource
//
//	waiting ── list ──► following ──┬── stream ended ──► following, from its position
//	   ▲                            ├── position lost ─► waiting (the engine keeps its state)
//	   │                            └── server gone ───► waiting, as its store may be another
//	   ├────── list failed: retried, with growing delays up to two seconds
//	   └────── not served (resource slices only): empty, checked again after 30 s
//
// The service is ready once every resource is listed. While the API server is unreachable,
// decisions use the known state. Their position shows how old it is.
package policy
