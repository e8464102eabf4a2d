// Package review answers access reviews: it takes a SubjectAccessReview of
// authorization.k8s.io v1 or v1beta1, asks the authorizers, and answers in the
// same version (specification: "Authorization", webhook authorization).
//
//	allowed, denied, no opinion   200, with the reason and evaluation errors
//	not ready to decide           503 with Retry-After: whoever asks tries again
//	no access review              400, 405, 413 or 415
//
// Answers carry the position of the policy that was decided on in the header
// X-Binnacle-Policy-Revision; it was read before the decision, so it never claims
// too much. Decisions on nodes hang on pods as well, whose position is not told:
// they say Cache-Control: no-store.
//
// The package keeps nothing between two reviews; package app mounts it.
package review
