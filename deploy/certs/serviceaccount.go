package certs

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"binnacle/libs/serving/tlsfiles"
)

// serviceAccountKeyBits is the size of the RSA key that signs service account tokens.
const serviceAccountKeyBits = 2048

// ensureServiceAccountKeys creates the RSA key that signs service account tokens if
// it is absent, and writes the public key if it does not match. It never replaces a
// key that it cannot read, because that would invalidate every issued token. It
// reports whether it created the key, even if it returns an error.
func ensureServiceAccountKeys(layout Layout) (isNew bool, err error) {
	key, err := loadRSAKey(layout.ServiceAccountKey())
	if errors.Is(err, fs.ErrNotExist) {
		key, err = createRSAKey(layout.ServiceAccountKey())
		isNew = err == nil
	}
	if err != nil {
		return false, err
	}
	return isNew, ensurePublicKey(layout.ServiceAccountPublicKey(), key)
}

// createRSAKey creates a private key and writes it to a file in PEM (PKCS 1).
func createRSAKey(path string) (*rsa.PrivateKey, error) {
	key, err := rsa.GenerateKey(rand.Reader, serviceAccountKeyBits)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return key, tlsfiles.WriteFile(path, private, 0o600)
}

// ensurePublicKey writes the public key of a private key to a file in PEM (PKIX), unless the file
// already contains it.
func ensurePublicKey(path string, key *rsa.PrivateKey) error {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	if old, err := os.ReadFile(path); err == nil && slices.Equal(old, public) {
		return nil
	}
	return tlsfiles.WriteFile(path, public, 0o644)
}

// loadRSAKey reads a private key in PEM (PKCS 1).
func loadRSAKey(path string) (*rsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block", path)
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}
