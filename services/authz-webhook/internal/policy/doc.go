// Package policy follows, at the API server, what decisions are made on: roles
// and bindings, and for the node authorizer pods, volumes, attachments and resource
// slices. It feeds them to the engines and keeps no objects of its own.
//
// # A resource's states
//
//	waiting ── list ──► following ──┬── stream ended ──► following, from its place
//	   ▲                            └── place lost ────► waiting (the engine keeps what it has)
//	   │                            └── server gone ───► waiting, as its store may be another
//	   ├────── list failed: tried again, with growing pauses up to two seconds
//	   └────── not served (resource slices alone): empty, looked at again after 30 s
//
// The service is ready once every resource was listed. When the API server is
// out of reach, decisions go on with what is known; their position says how old
// that is.
package policy
