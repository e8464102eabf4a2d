package satoken

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/url"
	"slices"
)

// Paths and media types of the documents with which clients verify tokens.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	JWKSPath      = "/openid/v1/jwks"
	JWKSMedia     = "application/jwk-set+json"
)

// discoveryDocument is the part of OpenID Connect discovery that tokens need.
type discoveryDocument struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// Discovery returns the discovery document of an issuer. issuer and jwksURI must be https URLs. As
// in Kubernetes, jwksURI may lack a host.
func Discovery(issuer, jwksURI string, keys []PublicKey) ([]byte, error) {
	for _, s := range []string{issuer, jwksURI} {
		u, err := url.Parse(s)
		switch {
		case err != nil:
			return nil, fmt.Errorf("issuer discovery: %w", err)
		case u.Scheme != "https" || u.Host == "" && (s != jwksURI || u.Path == "") || u.RawQuery != "" || u.Fragment != "":
			return nil, fmt.Errorf("issuer discovery: %q is not an https URL without query and fragment", s)
		}
	}
	document := discoveryDocument{
		Issuer:        issuer,
		JWKSURI:       jwksURI,
		ResponseTypes: []string{"id_token"},
		SubjectTypes:  []string{"public"},
		Algorithms:    []string{},
	}
	for _, k := range keys {
		if !slices.Contains(document.Algorithms, k.Algorithm) {
			document.Algorithms = append(document.Algorithms, k.Algorithm)
		}
	}
	slices.Sort(document.Algorithms)
	return json.Marshal(document)
}

// jwk is a public key (RFC 7517).
type jwk struct {
	Use       string `json:"use"`
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Curve     string `json:"crv,omitempty"`
	Algorithm string `json:"alg"`
	N         string `json:"n,omitempty"`
	E         string `json:"e,omitempty"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
}

// JWKS returns the set of keys as a document.
func JWKS(keys []PublicKey) ([]byte, error) {
	keySet := struct {
		Keys []jwk `json:"keys"`
	}{Keys: []jwk{}}
	enc := base64.RawURLEncoding.EncodeToString
	for _, publicKey := range keys {
		j := jwk{Use: "sig", ID: publicKey.ID, Algorithm: publicKey.Algorithm}
		switch key := publicKey.Key.(type) {
		case *rsa.PublicKey:
			j.Type, j.N, j.E = "RSA", enc(key.N.Bytes()), enc(big.NewInt(int64(key.E)).Bytes())
		case *ecdsa.PublicKey:
			point, err := key.Bytes() // 4, x, y: both of the size of the field
			if err != nil {
				return nil, fmt.Errorf("encode key %s: %w", publicKey.ID, err)
			}
			half := (len(point) - 1) / 2
			j.Type, j.Curve, j.X, j.Y = "EC", key.Params().Name, enc(point[1:1+half]), enc(point[1+half:])
		default:
			return nil, fmt.Errorf("key %s: %T is neither an RSA nor an ECDSA key", publicKey.ID, publicKey.Key)
		}
		keySet.Keys = append(keySet.Keys, j)
	}
	return json.Marshal(keySet)
}
