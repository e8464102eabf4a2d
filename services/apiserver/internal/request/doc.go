// Package request holds the state of a request that filters, authorization, admission and handlers
// share: what the request does (package requestinfo has the type), the authenticated user, the
// principal that limits count, and the warnings for the response.
//
// The state lives in one context value that Carry attaches. The Set functions fill it; only filters
// call them, before other goroutines have the request. The With functions attach a value of their
// own that only derived contexts see.
package request
