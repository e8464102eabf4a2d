package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"slices"
	"time"

	"binnacle/libs/serving/tlsfiles"
)

// authority is a CA. key is nil for an external CA; cert is nil for an external CA
// whose certificate is absent too.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// loadAuthority reads a CA with its key. It returns an error that wraps
// fs.ErrNotExist if a file is absent.
func loadAuthority(p Pair, now time.Time) (*authority, error) {
	pair, err := tlsfiles.LoadPair(p.Cert, p.Key)
	if err != nil {
		return nil, err
	}
	certificate := pair.Certificate()
	key, ok := certificate.PrivateKey.(crypto.Signer)
	switch {
	case !ok || !certificate.Leaf.IsCA:
		return nil, fmt.Errorf("%s is not a CA certificate", p.Cert)
	case expiresSoon(certificate.Leaf, now):
		return nil, fmt.Errorf("%s expires on %s", p.Cert, certificate.Leaf.NotAfter.Format(time.DateOnly))
	}
	return &authority{cert: certificate.Leaf, key: key}, nil
}

// loadExternal reads the certificate of a CA whose key is elsewhere.
func loadExternal(pair Pair) (*authority, error) {
	cert, err := readCertificate(pair.Cert)
	if errors.Is(err, fs.ErrNotExist) {
		return &authority{}, nil
	}
	return &authority{cert: cert}, err
}

// createAuthority creates a self-signed CA and writes its files.
func createAuthority(pair Pair, name string, now time.Time, lifetime time.Duration) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	template, err := newTemplate(pkix.Name{CommonName: name}, now, lifetime)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	a := &authority{cert: template, key: key}
	if err := a.signAndWrite(template, pair, key); err != nil {
		return nil, err
	}
	a.cert, err = readCertificate(pair.Cert)
	return a, err
}

// validCertificate reports whether the files of s hold a certificate of this CA with the wanted
// subject, usage and names that does not expire soon.
func (a *authority) validCertificate(spec certSpec, now time.Time) bool {
	pair, err := tlsfiles.LoadPair(spec.pair.Cert, spec.pair.Key)
	if err != nil || a.cert == nil {
		return false
	}
	leaf := pair.Certificate().Leaf
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, CurrentTime: now})
	return err == nil && !expiresSoon(leaf, now) && spec.matchesCert(leaf)
}

// matchesCert reports whether a certificate has the subject, usage and names of s.
func (s certSpec) matchesCert(leaf *x509.Certificate) bool {
	if !slices.Equal(leaf.ExtKeyUsage, s.use.extKeyUsages()) || leaf.Subject.CommonName != s.commonName ||
		!slices.Equal(leaf.Subject.Organization, s.organizations) {
		return false
	}
	for _, name := range s.dns {
		if !slices.Contains(leaf.DNSNames, name) { // VerifyHostname rejects wildcards as host names.
			return false
		}
	}
	for _, ip := range s.ips {
		if leaf.VerifyHostname(ip.String()) != nil {
			return false
		}
	}
	return true
}

// issueCert creates a key and a certificate for s and writes both files.
func (a *authority) issueCert(spec certSpec, now time.Time, lifetime time.Duration) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate key: %w", err)
	}
	template, err := newTemplate(spec.subject(), now, lifetime)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = spec.use.extKeyUsages()
	template.DNSNames = spec.dns
	template.IPAddresses = spec.ips
	return a.signAndWrite(template, spec.pair, key)
}

// newTemplate returns a certificate template with a random serial number.
func newTemplate(subject pkix.Name, now time.Time, lifetime time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("generate serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               subject,
		NotBefore:             now.Add(-time.Hour), // Clocks of other machines may be behind.
		NotAfter:              now.Add(lifetime),
		BasicConstraintsValid: true,
	}, nil
}

// signAndWrite signs a certificate for key and writes both files. The key comes first: the
// next call of Ensure replaces a pair that does not match.
func (a *authority) signAndWrite(template *x509.Certificate, pair Pair, key *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign %s: %w", pair.Cert, err)
	}
	keyPEM, err := tlsfiles.EncodeECKey(key)
	if err != nil {
		return err
	}
	if err := tlsfiles.WriteFile(pair.Key, keyPEM, 0o600); err != nil {
		return err
	}
	return tlsfiles.WriteFile(pair.Cert, tlsfiles.EncodeCertificate(der), 0o644)
}

// expiresSoon reports whether less than 30 days are left, or less than a third of
// the lifetime if that is shorter.
func expiresSoon(certificate *x509.Certificate, now time.Time) bool {
	return now.Add(min(renewBefore, certificate.NotAfter.Sub(certificate.NotBefore)/3)).After(certificate.NotAfter)
}

// readCertificate returns the first certificate of a file.
func readCertificate(path string) (*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	certs, err := tlsfiles.ParseCertificates(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return certs[0], nil
}

// Expiry returns the end of the validity of the first certificate of a file.
func Expiry(path string) (time.Time, error) {
	c, err := readCertificate(path)
	if err != nil {
		return time.Time{}, err
	}
	return c.NotAfter, nil
}
