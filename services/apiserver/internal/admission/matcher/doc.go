// Package matcher determines which webhooks and policies apply to a request. Each webhook or policy
// has Criteria and Conditions. Criteria are rules for operations and resources, and selectors of
// namespaces and objects. Under the match policy Equivalent, a rule for one version of a resource
// also matches requests for its other versions. Conditions are CEL expressions.
//
//	Index.Candidates   everything that does not depend on the object: computed once
//	                   per operation and kind, then one lookup
//	Candidate.Selects  selectors and names
//	Conditions.Match    expressions, on the object in the version of the rule
//
// An Index is immutable and safe for concurrent use. It is rebuilt when the indexed webhooks or
// policies change.
package matcher
