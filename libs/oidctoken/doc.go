// Package oidctoken authenticates the ID tokens of OpenID Connect providers.
//
// A Provider represents one issuer. It finds the issuer's signing keys by discovery and updates
// them when they rotate. It is in one of three states:
//
//	not initialized   discovery has not succeeded yet. Run retries it with a growing
//	                  delay, and tokens fail with ErrNotInitialized.
//	initialized       the metadata is known. The first token makes Run read the keys.
//	in use            the keys are known. Run reads them again periodically, and at
//	                  once when a token has an unknown key id. After a failure the
//	                  known keys stay in use.
//
// A token waits for the provider only if its key is unknown. The rate of requests for unknown keys
// is limited.
//
// An Authenticator checks a provider's tokens against audiences and maps their claims to a user
// with Rules: ClaimRules for the --oidc-* flags, or the rules of package authnconfig.
//
// A token may name a claim source for its groups instead of containing them (a distributed claim).
// The source returns a token with the claim. That token is verified like the ID token, with the
// keys of its own issuer. Without these groups the user is not authenticated.
//
// The token review service and the API server's front end use it.
package oidctoken
