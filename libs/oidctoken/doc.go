// Package oidctoken authenticates the ID tokens of OpenID Connect providers.
//
// A Provider is one issuer: it finds the issuer's signing keys by discovery and
// follows them as they rotate. It is in one of three states:
//
//	not initialized   no discovery has succeeded yet. Run retries it with a growing
//	                  pause, and tokens fail with ErrNotInitialized.
//	initialized       the metadata is known. The first token makes Run read the keys.
//	in use            keys are known. Run reads them again from time to time, and
//	                  at once when a token names an unknown key. A failure keeps
//	                  the keys in use.
//
// A token waits for the provider only if its key is not known; how often such tokens
// may cause a call is limited.
//
// An Authenticator holds a provider's tokens against audiences and Rules, which
// make a user of their claims: ClaimRules for the --oidc-* flags, those of
// package authnconfig for the authentication configuration file.
//
// A token may name a claim source for the claim of its groups in place of the
// groups (a distributed claim). The source returns a token that has the claim.
// It is verified like the ID token itself, by the keys of its own issuer.
// Without these groups the user is not authenticated.
//
// The token review service and the API server's front end call it.
package oidctoken
