package tlsfiles

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	selfSignedValidity = 365 * 24 * time.Hour
	// selfSignedRenewal is the remaining validity below which a pair is replaced.
	selfSignedRenewal = 30 * 24 * time.Hour
	// selfSignedBits is the size of the RSA key. Clients that offer only cipher suites
	// with RSA need such a key.
	selfSignedBits = 2048
)

// SelfSigned describes a self-signed pair.
type SelfSigned struct {
	Dir  string           // created if absent
	Name string           // of the files: <name>.crt and <name>.key
	DNS  []string         // subject alternative names
	IPs  []net.IP         // subject alternative addresses
	Now  func() time.Time // time.Now if nil
}

// LoadOrCreateSelfSigned returns the files of the pair in s.Dir. It creates the pair unless there
// is one that covers all names and stays valid for selfSignedRenewal.
func LoadOrCreateSelfSigned(selfSigned SelfSigned) (certFile, keyFile string, err error) {
	if selfSigned.Now == nil {
		selfSigned.Now = time.Now
	}
	certFile = filepath.Join(selfSigned.Dir, selfSigned.Name+".crt")
	keyFile = filepath.Join(selfSigned.Dir, selfSigned.Name+".key")
	reusable, err := selfSigned.canReuse(certFile, keyFile)
	if err != nil || reusable {
		return certFile, keyFile, err
	}
	if err := os.MkdirAll(selfSigned.Dir, 0o755); err != nil {
		return "", "", fmt.Errorf("create certificate folder: %w", err)
	}
	certPEM, keyPEM, err := selfSigned.generate()
	if err != nil {
		return "", "", err
	}
	if err := errors.Join(WriteFile(keyFile, keyPEM, 0o600), WriteFile(certFile, certPEM, 0o644)); err != nil {
		return "", "", err
	}
	return certFile, keyFile, nil
}

// canReuse reports whether the existing pair can be used. A pair that was signed by a CA was
// installed by an administrator and is never replaced.
func (s SelfSigned) canReuse(certFile, keyFile string) (bool, error) {
	pair, err := LoadPair(certFile, keyFile)
	if errors.Is(err, fs.ErrPermission) {
		return false, err
	}
	if err != nil {
		return false, nil // absent or damaged: create it
	}
	leaf := pair.Certificate().Leaf
	if leaf.Issuer.String() != leaf.Subject.String() {
		return true, nil
	}
	now := s.Now()
	if now.Before(leaf.NotBefore) || now.Add(selfSignedRenewal).After(leaf.NotAfter) {
		return false, nil
	}
	for _, name := range s.DNS {
		if leaf.VerifyHostname(name) != nil {
			return false, nil
		}
	}
	for _, ip := range s.IPs {
		if leaf.VerifyHostname(ip.String()) != nil {
			return false, nil
		}
	}
	return true, nil
}

// generate returns a new certificate and its key.
func (s SelfSigned) generate() (certPEM, keyPEM []byte, err error) {
	key, err := rsa.GenerateKey(rand.Reader, selfSignedBits)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("generate serial number: %w", err)
	}
	now := s.Now()
	// The certificate is its own CA, so that clients can use it as their CA bundle.
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s-self-signed@%d", s.Name, now.Unix())},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(selfSignedValidity),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              s.DNS,
		IPAddresses:           s.IPs,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate: %w", err)
	}
	return EncodeCertificate(der), EncodeRSAKey(key), nil
}
