package shim

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	loopbackCert = "loopback.crt"
	loopbackKey  = "loopback.key"
	keyBits      = 2048
	validity     = 24 * time.Hour
)

// CA is a certificate authority.
type CA struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// NewCA creates a certificate authority and writes its certificate to dir/file.
func NewCA(dir, file, name string) (CA, error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return CA{}, err
	}
	c, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		return CA{}, err
	}
	ca := CA{Cert: c, Key: key}
	return ca, ca.Write(dir, file)
}

// Write writes the certificate of the CA.
func (ca CA) Write(dir, file string) error {
	return os.WriteFile(filepath.Join(dir, file), encode(ca.Cert.Raw), 0o644)
}

// WriteClient writes a client certificate of the CA for a user name: file.crt and file.key in dir.
func (ca CA) WriteClient(dir, file, name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: ca.Cert.NotBefore, NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.Cert, key.Public(), ca.Key)
	if err != nil {
		return err
	}
	return writePair(dir, file+".crt", file+".key", der, key)
}

// writeLoopbackPair writes the certificate with which the test verifies its server, and returns it.
func writeLoopbackPair(dir string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: loopbackName},
		DNSNames:     []string{loopbackName},
		NotBefore:    time.Now().Add(-time.Minute), NotAfter: time.Now().Add(validity), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return encode(der), writePair(dir, loopbackCert, loopbackKey, der, key)
}

func writePair(dir, certFile, keyFile string, der []byte, key crypto.PrivateKey) error {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, keyFile), keyPEM, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, certFile), encode(der), 0o644)
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// WriteServiceAccountKey writes a signing key for service account tokens and returns its path.
func WriteServiceAccountKey(dir string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "service-accounts.key")
	return path, os.WriteFile(path, keyPEM, 0o600)
}
