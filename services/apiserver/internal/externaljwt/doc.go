// Package externaljwt signs service account tokens by an external signer, which listens on a
// Unix socket and implements the gRPC service ExternalJWTSigner of Kubernetes
// (k8s.io/externaljwt, KEP-740), and verifies tokens by the keys of that signer.
//
// Signer keeps the keys that the signer returned last. Run fetches them again when the signer
// asks for it. A token with an unknown key id causes a fetch, too. If a fetch fails, the keys
// stay as they are. If the signer does not answer, no token is issued.
package externaljwt
