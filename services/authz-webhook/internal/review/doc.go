// Package review serves access reviews: it reads a SubjectAccessReview of authorization.k8s.io v1
// or v1beta1, calls the authorizers, and responds in the same version (specification:
// "Authorization", webhook authorization).
//
//	allowed, denied, no opinion   200, with the reason and evaluation errors
//	not ready to decide           503 with Retry-After: the caller retries
//	no access review              400, 405, 413 or 415
//
// Responses carry the position of the policy in the header X-Binnacle-Policy-Revision. It is read
// before the decision, so the decision includes at least the changes up to it. Decisions on nodes
// also depend on pods, whose position is not reported, so they carry Cache-Control: no-store.
//
// The package keeps no state between reviews. Package app mounts it.
package review
