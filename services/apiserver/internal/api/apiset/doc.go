// Package apiset holds the set of kinds that a request sees, from routing to response. A Set is
// immutable, so a request sees the same kinds until it completes, even if definitions change. Live
// holds the current set. The first filter of the chain reads the current set once for each request
// (package request), and all later code uses the set of the request.
//
// Set.WithDefinitions derives a set with custom kinds from another set. Both share all unchanged
// parts, so the cost of adding a definition does not depend on the number of definitions.
package apiset
