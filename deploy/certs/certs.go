package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"slices"
	"time"

	"binnacle/libs/serving/tlsfiles"
)

const (
	caValidity   = 10 * 365 * 24 * time.Hour
	leafValidity = 365 * 24 * time.Hour
	// renewal is how long what is there must still be valid to be kept.
	renewal = 30 * 24 * time.Hour
	rsaBits = 2048
)

// authority is a CA with its key.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// Ensure makes what is missing or does not fit, and returns the paths of the
// certificates and keys that it made.
func Ensure(o Options) (made []string, err error) {
	l := Layout{o.Dir}
	programs := o.programs()
	for _, name := range append(Programs(), caFolder) {
		if err := os.MkdirAll(l.Folder(name), 0o700); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	signers := map[CA]*authority{}
	for _, a := range CAs() {
		signer, isNew, err := ensureCA(l.CA(a), "binnacle-"+string(a), now)
		if err != nil {
			return made, err
		}
		if signers[a] = signer; isNew {
			made = append(made, l.CA(a).Cert)
		}
	}
	for _, p := range programs {
		for _, a := range p.trusts {
			if err := copyFile(l.CA(a).Cert, l.Trust(p.name, a)); err != nil {
				return made, err
			}
		}
		for _, s := range p.shows {
			if !o.Renew && signers[s.by].fits(s, now) {
				continue
			}
			if err := signers[s.by].issue(s, now); err != nil {
				return made, err
			}
			made = append(made, s.pair.Cert)
		}
	}
	isNew, err := ensureServiceAccountKeys(l)
	if isNew {
		made = append(made, l.ServiceAccountKey())
	}
	return made, err
}

// copyFile makes a copy of public content, unless it is one already.
func copyFile(from, to string) error {
	want, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(to); err == nil && bytes.Equal(have, want) {
		return nil
	}
	return tlsfiles.WriteFile(to, want, 0o644)
}

func ensureCA(p Pair, name string, now time.Time) (a *authority, isNew bool, err error) {
	loaded, err := tlsfiles.LoadPair(p.Cert, p.Key)
	if err == nil {
		c := loaded.Certificate()
		key, ok := c.PrivateKey.(crypto.Signer)
		if ok && c.Leaf.IsCA && now.Add(renewal).Before(c.Leaf.NotAfter) {
			return &authority{cert: c.Leaf, key: key}, false, nil
		}
	}
	// A CA that cannot be read for lack of permission must not be replaced.
	if errors.Is(err, fs.ErrPermission) {
		return nil, false, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, false, fmt.Errorf("generate key: %w", err)
	}
	template, err := newTemplate(pkix.Name{CommonName: name}, now, caValidity)
	if err != nil {
		return nil, false, err
	}
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	a = &authority{cert: template, key: key}
	if err := a.sign(template, p, key); err != nil {
		return nil, false, err
	}
	loaded, err = tlsfiles.LoadPair(p.Cert, p.Key)
	if err != nil {
		return nil, false, err
	}
	return &authority{cert: loaded.Certificate().Leaf, key: key}, true, nil
}

// fits tells whether what is there is what s wants.
func (a *authority) fits(s spec, now time.Time) bool {
	loaded, err := tlsfiles.LoadPair(s.pair.Cert, s.pair.Key)
	if err != nil {
		return false
	}
	leaf := loaded.Certificate().Leaf
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, CurrentTime: now.Add(renewal)})
	if err == nil && !slices.Equal(leaf.ExtKeyUsage, s.use.extended()) {
		return false
	}
	if err != nil || leaf.Subject.CommonName != s.cn || !slices.Equal(leaf.Subject.Organization, s.organizations) {
		return false
	}
	for _, name := range s.dns {
		if !slices.Contains(leaf.DNSNames, name) { // which may be a wildcard
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

func (a *authority) issue(s spec, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate key: %w", err)
	}
	template, err := newTemplate(pkix.Name{CommonName: s.cn, Organization: s.organizations}, now, leafValidity)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = s.use.extended()
	template.DNSNames = s.dns
	template.IPAddresses = s.ips
	return a.sign(template, s.pair, key)
}

func newTemplate(subject pkix.Name, now time.Time, validity time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("generate serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               subject,
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(validity),
		BasicConstraintsValid: true,
	}, nil
}

// sign signs a certificate for key and writes both files, the key first: a
// certificate without its key is made anew, a key without certificate too.
func (a *authority) sign(template *x509.Certificate, p Pair, key *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign %s: %w", p.Cert, err)
	}
	keyPEM, err := tlsfiles.EncodeECKey(key)
	if err != nil {
		return err
	}
	if err := tlsfiles.WriteFile(p.Key, keyPEM, 0o600); err != nil {
		return err
	}
	return tlsfiles.WriteFile(p.Cert, tlsfiles.EncodeCertificate(der), 0o644)
}

// ensureServiceAccountKeys makes an RSA pair unless there is one, and writes
// the public half when it does not belong to the private one.
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
		// Tokens that were issued with it are worth more than a clean start.
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

func loadRSAKey(path string) (*rsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s holds no key in PEM form", path)
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}
