// Package matcher finds out which webhooks and policies a request is for. Each
// says so by a Criterion: rules of operations and resources, with their scope and,
// under the policy Equivalent, for every version of a resource; selectors of
// namespaces and objects; and Conditions, which are expressions.
//
//	Index.Candidates   what does not hang on the object: once for each operation
//	                   on each kind, then one look-up
//	Candidate.Selects  selectors and names
//	Conditions.Hold    expressions, on the object as the rule wants it
//
// An Index is immutable and safe for concurrent use. A new one is made when what
// it indexes changes.
package matcher
