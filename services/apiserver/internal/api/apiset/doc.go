// Package apiset holds the set of kinds that a request sees, from routing to response. A Set is
// immutable: a request that has one sees the same kinds until it ends, even if definitions change.
// Live holds the current set. The front of the filter chain takes it once for each request (package
// request), and all later code uses the set of the request.
//
// A set with custom kinds is derived from another one (Set.WithDefinitions) and shares all
// unchanged parts, so that the cost of adding a definition does not depend on the number of
// definitions.
package apiset
