package harness

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are valid from half a day ago until half a day from now, because tests shift clocks.
const (
	certificateLifetime = 24 * time.Hour
	certificateAge      = certificateLifetime / 2
)

// PKI is a certificate authority whose files are in a folder of the test.
type PKI struct {
	t    testing.TB
	Dir  string
	CA   string // file of the CA certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, as PEM and as files.
type Pair struct {
	Cert, Key         []byte
	CertFile, KeyFile string
}

// NewPKI creates a certificate authority.
func NewPKI(t testing.TB) *PKI {
	t.Helper()
	pki := &PKI{t: t, Dir: t.TempDir()}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "e2e-ca"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	pki.key = pki.newKey()
	pair := pki.sign("ca", template, template, pki.key, pki.key)
	block, _ := pem.Decode(pair.Cert)
	var err error
	if pki.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	pki.CA = pair.CertFile
	return pki
}

// Client issues a client certificate for a user.
func (p *PKI) Client(user string, groups ...string) Pair {
	p.t.Helper()
	return p.issue("client-"+user, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Serving issues a serving certificate for the loopback interface.
func (p *PKI) Serving(name string) Pair {
	p.t.Helper()
	return p.issue("serving-"+name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	})
}

// ServingFor issues a serving certificate for DNS names only.
func (p *PKI) ServingFor(file string, names ...string) Pair {
	p.t.Helper()
	return p.issue("serving-"+file, &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: names,
	})
}

// Signer issues a certificate whose key signs service account tokens.
func (p *PKI) Signer(name string) Pair {
	p.t.Helper()
	return p.issue("signer-"+name, &x509.Certificate{Subject: pkix.Name{CommonName: name}})
}

// Reissue replaces the certificate of a pair, also in its file, by one that expires at a time.
func (p *PKI) Reissue(pair Pair, expires time.Time) Pair {
	p.t.Helper()
	return p.reissue(pair, func(c *x509.Certificate) { c.NotAfter = expires })
}

// Postpone replaces the certificate of a pair, also in its file, by one that becomes valid after a
// duration.
func (p *PKI) Postpone(pair Pair, by time.Duration) Pair {
	p.t.Helper()
	return p.reissue(pair, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(by) })
}

// reissue issues a certificate again with a change of its template.
func (p *PKI) reissue(pair Pair, change func(*x509.Certificate)) Pair {
	p.t.Helper()
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		p.t.Fatal(err)
	}
	change(cert)
	der, err := x509.CreateCertificate(rand.Reader, cert, p.cert, cert.PublicKey, p.key)
	if err != nil {
		p.t.Fatal(err)
	}
	pair.Cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	// The rename is atomic, so that a reader finds the old or the new certificate.
	next := pair.CertFile + ".next"
	if err := os.WriteFile(next, pair.Cert, 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(next, pair.CertFile); err != nil {
		p.t.Fatal(err)
	}
	return pair
}

// issue issues a certificate of the CA with a new key.
func (p *PKI) issue(file string, template *x509.Certificate) Pair {
	p.t.Helper()
	template.KeyUsage = x509.KeyUsageDigitalSignature
	return p.sign(file, template, p.cert, p.newKey(), p.key)
}

// newKey returns a new ECDSA key.
func (p *PKI) newKey() *ecdsa.PrivateKey {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	return key
}

// sign issues a certificate and writes it with its key.
func (p *PKI) sign(file string, template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) Pair {
	p.t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		p.t.Fatal(err)
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-certificateAge)
	template.NotAfter = template.NotBefore.Add(certificateLifetime)
	cert, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		p.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	pair := Pair{
		Cert:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		Key:      pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
		CertFile: filepath.Join(p.Dir, file+".crt"),
		KeyFile:  filepath.Join(p.Dir, file+".key"),
	}
	if err := os.WriteFile(pair.CertFile, pair.Cert, 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(pair.KeyFile, pair.Key, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return pair
}
