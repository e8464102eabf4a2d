// Package review serves token reviews: it reads a TokenReview of authentication.k8s.io v1 or
// v1beta1, calls the authenticators, and responds in the same version (specification: "Token
// webhook authentication").
//
//	valid token     200, authenticated, with the user
//	invalid token   200, not authenticated, with the reason
//	unknown token   200, not authenticated
//	undecided       503 with Retry-After: the caller retries and does not cache
//	                the result
//	no token review 400, 405, 413 or 415
//
// Neither tokens nor review bodies are logged, counted or returned. The package keeps no state
// between reviews. Package app mounts it.
package review
