// Package clusterinfo defines the config map from which a new node learns the address and the CA of
// the cluster (specification: "Cluster-info config map"): its names, and the signatures by which a
// node that has only a bootstrap token can trust it.
//
// A signature is a JSON Web Signature of the kubeconfig with detached content (RFC 7515, appendix
// F): HEADER..SIGNATURE, both in base64url without padding. The header is
// {"alg":"HS256","kid":"TOKEN_ID"}, the key is the token's secret.
package clusterinfo

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"binnacle/libs/api"
)

// Name and keys of the config map.
const (
	Namespace       = api.PublicNamespace
	Name            = "cluster-info"
	KeyKubeconfig   = "kubeconfig"
	SignaturePrefix = "jws-kubeconfig-"
)

// algorithm is the only supported algorithm.
const algorithm = "HS256"

// protectedHeader is protected by the signature. The order of its fields is fixed.
type protectedHeader struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}

// SignatureKey returns the key of a token's signature in the map.
func SignatureKey(id string) string { return SignaturePrefix + id }

// Sign returns the signature of a kubeconfig by a token. It is deterministic.
func Sign(kubeconfig, id, secret string) string {
	// Encoding two strings cannot fail.
	h, _ := json.Marshal(protectedHeader{Algorithm: algorithm, KeyID: id})
	protected := base64.RawURLEncoding.EncodeToString(h)
	return protected + ".." + base64.RawURLEncoding.EncodeToString(computeMAC(protected, kubeconfig, secret))
}

// computeMAC computes the signature of RFC 7515, section 5.1.
func computeMAC(protected, kubeconfig, secret string) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(protected + "." + base64.RawURLEncoding.EncodeToString([]byte(kubeconfig))))
	return m.Sum(nil)
}
