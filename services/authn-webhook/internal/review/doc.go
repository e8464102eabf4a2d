// Package review answers token reviews: it takes a TokenReview of
// authentication.k8s.io v1 or v1beta1, asks the authenticators, and answers in
// the same version (specification: "Token webhook authentication").
//
//	token is good            200, authenticated, with the user
//	token is no good         200, not authenticated, with the reason
//	nobody knows the token   200, not authenticated
//	no decision was possible 503 with Retry-After: whoever asks tries again, and
//	                         does not keep the answer
//	no token review          400, 405, 413 or 415
//
// Neither a token nor a review's body is logged, counted or answered back. The
// package keeps nothing between two reviews; package app mounts it.
package review
