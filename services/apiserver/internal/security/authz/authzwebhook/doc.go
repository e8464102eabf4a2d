// Package authzwebhook calls an authorization service (specification: "Authorization", webhook
// authorization): SubjectAccessReview v1 or v1beta1 over HTTPS, with the address and the
// credentials of a kubeconfig.
//
// # Steps of a decision
//
//	match conditions ── any false ──► no opinion
//	      │ all true (an error and none false: failure policy)
//	      ▼
//	cache ── valid decision ──► that decision
//	      │ none
//	      ▼
//	one call per request and policy ── response ──► decision, cached if allowed
//	                                └─ timeout or error ──► failure policy
//
// # Caching
//
// A decision is cached for the configured time, unless the request is oversized, the response says
// no-store, or the policy has changed. A change of a role or binding affects decisions in its
// namespace. A change of a cluster-scoped one affects all. A change of metadata affects none.
// PolicyChanged invalidates the decisions that a change affects, and remembers its position for the
// namespace or for all. A decision is cached only if it was made at or after the position of the
// last change that affects it.
//
// Services report the position of a decision in the header X-Binnacle-Policy-Revision. A decision
// without the header is cached only if no change that affects it was seen since the request. The
// position and the cache change under one lock, so no older decision is cached after a change.
// Requests after a change do not join calls that started before it.
//
// A service that reports an older position than the server's is called again for up to about half a
// second. So a change affects the next request, although it reaches the service by another path.
// When the store's revision goes backwards, positions start again, and nothing is cached for half a
// minute: services may still decide by the old policy, and their positions do not show it.
package authzwebhook
