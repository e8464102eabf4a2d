// Package externaljwt signs service account tokens with an external signer and verifies tokens with
// its keys. The signer listens on a Unix socket and implements the gRPC service ExternalJWTSigner
// of Kubernetes (k8s.io/externaljwt, KEP-740).
//
// Signer keeps the keys that the signer returned last. Run fetches them again when the signer
// requests it. A token with an unknown key id also causes a fetch. If a fetch fails, the keys stay
// as they are. If the signer does not respond, no token is issued.
package externaljwt
