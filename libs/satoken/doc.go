// Package satoken is the tokens of service accounts: it signs them, verifies
// them, and publishes the keys that verify them (specification: "Methods",
// Service account token).
//
// Signer makes the bound tokens of TokenRequest; Authenticator knows their
// bearer. A bound token names its account by uid, and possibly the pod, secret
// or node that it lives with, and is worth nothing once one of them is gone:
// Objects looks them up. Tokens of the older kind, which live in a secret and
// never expire, are known too. Discovery and JWKS are the documents that let
// others verify tokens; HintOf says which objects the worth of a token hangs on,
// for whoever keeps answers.
//
// The API server signs, verifies and publishes; the token review service
// verifies. All values are immutable after their making and safe for concurrent
// use. No error holds a token.
package satoken
