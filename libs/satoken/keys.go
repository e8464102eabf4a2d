package satoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// PublicKey verifies tokens.
type PublicKey struct {
	Key crypto.PublicKey // *rsa.PublicKey or *ecdsa.PublicKey
	// ID is the key id in token headers, derived from the key.
	ID string
	// Algorithm is the only algorithm that the key verifies.
	Algorithm string
	// Undiscoverable keys verify tokens but are not published.
	Undiscoverable bool
}

// NewPublicKey returns the description of a key.
func NewPublicKey(key crypto.PublicKey) (PublicKey, error) {
	alg, err := algorithmFor(key)
	if err != nil {
		return PublicKey{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return PublicKey{}, fmt.Errorf("encode public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return PublicKey{Key: key, ID: base64.RawURLEncoding.EncodeToString(sum[:]), Algorithm: alg}, nil
}

// algorithmFor returns the algorithm for a key.
func algorithmFor(key crypto.PublicKey) (string, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return "RS256", nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return "ES256", nil
		case elliptic.P384():
			return "ES384", nil
		case elliptic.P521():
			return "ES512", nil
		}
		return "", fmt.Errorf("elliptic curve %s is not one of P-256, P-384, P-521", k.Curve.Params().Name)
	}
	return "", fmt.Errorf("%T is neither an RSA nor an ECDSA key", key)
}

// LoadPublicKeys reads the keys of several files, without duplicates.
func LoadPublicKeys(files ...string) ([]PublicKey, error) {
	var keys []PublicKey
	seen := map[string]bool{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		found, err := ParsePublicKeys(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		for _, k := range found {
			if !seen[k.ID] {
				seen[k.ID] = true
				keys = append(keys, k)
			}
		}
	}
	return keys, nil
}

// ParsePublicKeys parses PEM data with public keys, private keys and certificates, RSA or ECDSA. It
// skips blocks of other types. It returns an error if there is no key.
func ParsePublicKeys(data []byte) ([]PublicKey, error) {
	var keys []PublicKey
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			break
		}
		key, err := parseBlock(block)
		if err != nil {
			return nil, err
		}
		if key == nil {
			continue
		}
		if s, ok := key.(crypto.Signer); ok {
			key = s.Public()
		}
		k, err := NewPublicKey(key)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("no RSA or ECDSA key in PEM form")
	}
	return keys, nil
}

// parseBlock returns the key of a block, or nil for blocks without a key, such as the parameters of
// a curve.
func parseBlock(block *pem.Block) (any, error) {
	switch block.Type {
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	case "PRIVATE KEY":
		return x509.ParsePKCS8PrivateKey(block.Bytes)
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return c.PublicKey, nil
	}
	return nil, nil
}

// LoadPrivateKey reads the first private key of a PEM file.
func LoadPrivateKey(file string) (crypto.Signer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			return nil, fmt.Errorf("%s: no RSA or ECDSA private key in PEM form", file)
		}
		key, err := parseBlock(block)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if s, ok := key.(crypto.Signer); ok {
			if _, err := algorithmFor(s.Public()); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			return s, nil
		}
	}
}
