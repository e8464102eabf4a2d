// Package request holds the state of a request that filters, authorization, admission and handlers
// share: what the request does (package requestinfo has the type), the authenticated user, the
// principal that limits count, and the warnings for the response.
//
// The state is one value in the context. The first filter of package server attaches it with
// Derive, and each later filter writes the fields that it owns. A part of the server that acts as
// another user, or must not use the limits of its request, derives a copy.
package request
