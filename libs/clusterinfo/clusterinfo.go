// Package clusterinfo defines the config map from which a new node learns the address and the CA of
// the cluster (specification: "Cluster-info config map"): its names, and the signatures by which a
// node that has only a bootstrap token can trust it.
//
// A signature is a JSON Web Signature of the kubeconfig with detached content (RFC 7515, appendix
// F): HEADER..SIGNATURE, both in base64url without padding. The header is
// {"alg":"HS256","kid":"TOKEN_ID"}, the key is the token's secret. The writer of the map calls
// Sign, joining nodes call Verify. Neither has state.
package clusterinfo

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

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

// maxSignature bounds the input of Verify in bytes. A signature has about 90 bytes.
const maxSignature = 1 << 10

// ErrSignature is wrapped by all errors of Verify.
var ErrSignature = errors.New("the signature of cluster-info is not valid")

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

// Verify returns an error unless signature is the signature of kubeconfig by the token with this id
// and secret. The header of the signature must name HS256 and the id.
func Verify(signature, kubeconfig, id, secret string) error {
	if secret == "" {
		return fmt.Errorf("%w: no secret to check it with", ErrSignature)
	}
	if len(signature) > maxSignature {
		return fmt.Errorf("%w: too long", ErrSignature)
	}
	parts := strings.Split(signature, ".")
	if len(parts) != 3 || parts[1] != "" {
		return fmt.Errorf("%w: not of the form HEADER..SIGNATURE", ErrSignature)
	}
	if err := checkHeader(parts[0], id); err != nil {
		return err
	}
	// The comparison is on the text, because Go's decoder ignores line breaks.
	expected := base64.RawURLEncoding.EncodeToString(computeMAC(parts[0], kubeconfig, secret))
	if !hmac.Equal([]byte(parts[2]), []byte(expected)) {
		return fmt.Errorf("%w: not made from this kubeconfig with this token", ErrSignature)
	}
	return nil
}

// checkHeader returns an error unless the protected header names the algorithm and the token id.
func checkHeader(protected, id string) error {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(protected)
	if err != nil {
		return fmt.Errorf("%w: the header is not base64url", ErrSignature)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return fmt.Errorf("%w: the header is not a JSON object", ErrSignature)
	}
	switch {
	case fields["alg"] != algorithm:
		return fmt.Errorf("%w: the algorithm is not %s", ErrSignature, algorithm)
	case fields["kid"] != id:
		return fmt.Errorf("%w: the key is not that of token %s", ErrSignature, id)
	case fields["crit"] != nil, fields["b64"] != nil:
		// RFC 7515, section 4.1.11: unsupported critical parameters are rejected.
		return fmt.Errorf("%w: the header asks for an extension", ErrSignature)
	}
	return nil
}

// computeMAC computes the signature of RFC 7515, section 5.1.
func computeMAC(protected, kubeconfig, secret string) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(protected + "." + base64.RawURLEncoding.EncodeToString([]byte(kubeconfig))))
	return m.Sum(nil)
}
