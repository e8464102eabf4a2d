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

// rsaBits is the size of the key.
const rsaBits = 2048

// ensureServiceAccountKeys creates the RSA key that signs service account tokens if
// it is absent, and writes the public key if it does not match. It never replaces a
// key that it cannot read, because that would invalidate every issued token.
func ensureServiceAccountKeys(l Layout) (isNew bool, err error) {
	key, err := loadRSAKey(l.ServiceAccountKey())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		isNew = true
		if key, err = rsa.GenerateKey(rand.Reader, rsaBits); err != nil {
			return false, fmt.Errorf("generate key: %w", err)
		}
		private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
		if err := tlsfiles.WriteFile(l.ServiceAccountKey(), private, 0o600); err != nil {
			return false, err
		}
	case err != nil:
		return false, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return isNew, fmt.Errorf("encode key: %w", err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	if old, err := os.ReadFile(l.ServiceAccountPublicKey()); err == nil && slices.Equal(old, public) {
		return isNew, nil
	}
	return isNew, tlsfiles.WriteFile(l.ServiceAccountPublicKey(), public, 0o644)
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
