// Package satoken implements the tokens of service accounts: it signs them, verifies them, and
// publishes the keys to verify them (specification: "Methods", Service account token).
//
// Signer issues the bound tokens of TokenRequest. Authenticator authenticates them. A bound token
// contains the uid of its account, and possibly that of a pod, secret or node. It becomes invalid
// when one of them is deleted: Objects looks them up. Tokens of the older kind, which live in a
// secret and never expire, are supported too. Discovery and JWKS return the documents with which
// clients verify tokens. ParseUnverified returns the objects that the validity of a token depends
// on, for caches of results.
//
// The API server signs, verifies and publishes. The token review service verifies. All values are
// immutable after creation and safe for concurrent use. No error contains a token.
package satoken
