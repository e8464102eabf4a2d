// Package matcher determines which webhooks and policies apply to a request. Each has a Criterion:
// rules of operations and resources with their scope and, under the policy Equivalent, for every
// version of a resource; selectors of namespaces and objects; and Conditions, which are
// expressions.
//
//	Index.Candidates   everything that does not depend on the object: computed once
//	                   per operation and kind, then one lookup
//	Candidate.Selects  selectors and names
//	Conditions.Match    expressions, on the object in the version of the rule
//
// An Index is immutable and safe for concurrent use. It is rebuilt when the indexed webhooks or
// policies change.
package matcher
