// Package clusterinfo is the config map by which a new node learns how to reach
// the cluster and whom to trust there (specification: "Cluster-info config
// map"): its names, and the signatures that make it trustworthy to a joiner who
// knows nothing but a bootstrap token.
//
// A signature is a JSON Web Signature of the kubeconfig with detached content
// (RFC 7515, appendix F): HEADER..SIGNATURE, both in base64url without padding.
// The header is {"alg":"HS256","kid":"TOKEN_ID"}, the key is the token's secret.
// Sign is for whoever keeps the map, Verify for joiners. Neither has any state.
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

// Where the map is, and its keys.
const (
	Namespace       = api.PublicNamespace
	Name            = "cluster-info"
	KeyKubeconfig   = "kubeconfig"
	SignaturePrefix = "jws-kubeconfig-"
)

// algorithm is the only one that is made or taken.
const algorithm = "HS256"

// maxSignature bounds what Verify looks into; a signature has about 90 bytes.
const maxSignature = 1 << 10

// ErrSignature is what Verify's errors are.
var ErrSignature = errors.New("the signature of cluster-info is not valid")

// header is protected by the signature; its fields are in this order.
type header struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}

// SignatureKey is the key of a token's signature in the map.
func SignatureKey(id string) string { return SignaturePrefix + id }

// Sign a kubeconfig with a token. The same arguments give the same signature.
func Sign(kubeconfig, id, secret string) string {
	// Two strings can always be encoded.
	h, _ := json.Marshal(header{Algorithm: algorithm, KeyID: id})
	protected := base64.RawURLEncoding.EncodeToString(h)
	return protected + ".." + base64.RawURLEncoding.EncodeToString(mac(protected, kubeconfig, secret))
}

// Verify that a signature is that of a kubeconfig by a token. Only HS256 by that
// token's id is taken, whatever the signature says of itself.
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
	// As text: Go's decoder takes line breaks for nothing.
	want := base64.RawURLEncoding.EncodeToString(mac(parts[0], kubeconfig, secret))
	if !hmac.Equal([]byte(parts[2]), []byte(want)) {
		return fmt.Errorf("%w: not made from this kubeconfig with this token", ErrSignature)
	}
	return nil
}

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
		// RFC 7515, section 4.1.11: what is critical and not understood is refused.
		return fmt.Errorf("%w: the header asks for an extension", ErrSignature)
	}
	return nil
}

// mac signs as RFC 7515, section 5.1 says.
func mac(protected, kubeconfig, secret string) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(protected + "." + base64.RawURLEncoding.EncodeToString([]byte(kubeconfig))))
	return m.Sum(nil)
}
