// Package celenv makes environments for CEL expressions that are written into
// configuration and definitions: over the claims and the user of a token, over
// a request that is to be authorized, over custom resources. The caller names
// the variables and their types; the functions are those that such expressions
// have in Kubernetes 1.33: of strings, lists, sets, regular expressions, URLs,
// quantities, addresses and networks, named formats and optional values.
//
// A Base has the functions, an Env the variables too. An Env and the Programs
// and Runners made with it are immutable and safe for concurrent use.
// Evaluation is bounded: by PerCallLimit units of cost in each call, by a
// Budget that several calls share, and by the context's end. Costs, when an
// expression runs (meter) and at most (Costs), are those of Kubernetes: they
// decide which rules a definition may have.
//
// It is used by package authnconfig, by the match conditions of webhooks, by
// the rules of custom resources and by admission policies.
package celenv
