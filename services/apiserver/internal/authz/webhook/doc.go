// Package webhook asks a service of permission (specification: "Authorization",
// webhook authorization): SubjectAccessReview v1 or v1beta1 over HTTPS, to the
// address and with the credentials of a kubeconfig.
//
// # A question's way
//
//	match conditions ── any false ──► no opinion
//	      │ all true (an error with none false: failure policy)
//	      ▼
//	cache ── fresh decision ──► that
//	      │ none
//	      ▼
//	one flight per question and policy ── answer ──► decision, kept if it may be
//	                                   └─ none in time, or broken ──► failure policy
//
// # What may be kept
//
// A decision is kept for the time configured, unless the question is oversized,
// the answer says no-store, or the policy moved on. A change of a role or binding
// affects decisions in its namespace; a change of a cluster-scoped one affects all;
// a change of metadata affects none. PolicyChanged invalidates the decisions that a
// change affects, and remembers its position for the namespace or for all. A decision
// is kept only if it was made at the position of the last change that affects it, or
// after it. Services say in the header
// X-Binnacle-Policy-Revision what position they decided at; of one that does not,
// a decision is kept only if no such change was seen since it was asked for. The
// position and the cache change under one lock, so that no older decision comes
// in after a change was seen; flights of before the change are not joined by
// questions that come after it. A service that tells an older position than the
// one seen here is asked again for up to about half a second, so that a change
// counts for the next question although its news travel by two ways. When the store
// went back, positions begin anew, and for half a minute nothing is kept: services may
// still decide on what was, and their positions do not show it.
package webhook
