package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"binnacle/libs/filewatch"
)

// Source is TLS material read from files.
type Source interface {
	// Files lists the paths that the material is read from.
	Files() []string
	// Reload reads the files again. It reports whether the content changed,
	// and keeps the content in use when it returns an error.
	Reload() (changed bool, err error)
}

// ExpiringSource is a source of certificates.
type ExpiringSource interface {
	Source
	// FirstExpiring returns the certificate in use that expires first.
	FirstExpiring() *x509.Certificate
}

// Pair is a certificate chain and its key.
type Pair struct {
	certFile, keyFile string

	mu              sync.Mutex // serializes Reload; leaf lock
	certPEM, keyPEM []byte
	current         atomic.Pointer[tls.Certificate]
}

// LoadPair reads a pair of PEM files.
func LoadPair(certFile, keyFile string) (*Pair, error) {
	p := &Pair{certFile: certFile, keyFile: keyFile}
	if _, err := p.Reload(); err != nil {
		return nil, err
	}
	return p, nil
}

// FixedPair returns a pair that is not in a file and never changes.
func FixedPair(certPEM, keyPEM []byte) (*Pair, error) {
	p := &Pair{}
	return p, p.set(certPEM, keyPEM)
}

// Certificate returns the pair in use; its Leaf is set.
func (p *Pair) Certificate() *tls.Certificate { return p.current.Load() }

// FirstExpiring implements ExpiringSource.
func (p *Pair) FirstExpiring() *x509.Certificate {
	chain := p.Certificate()
	first := chain.Leaf
	for _, der := range chain.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil && c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	return first
}

// Files implements Source.
func (p *Pair) Files() []string {
	if p.certFile == "" {
		return nil
	}
	return []string{p.certFile, p.keyFile}
}

// Reload implements Source.
func (p *Pair) Reload() (bool, error) {
	if p.certFile == "" {
		return false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	certPEM, err := filewatch.Read(p.certFile)
	if err != nil {
		return false, err
	}
	keyPEM, err := filewatch.Read(p.keyFile)
	if err != nil {
		return false, err
	}
	if bytes.Equal(certPEM, p.certPEM) && bytes.Equal(keyPEM, p.keyPEM) {
		return false, nil
	}
	if err := p.set(certPEM, keyPEM); err != nil {
		return false, fmt.Errorf("load %s and %s: %w", p.certFile, p.keyFile, err)
	}
	return true, nil
}

func (p *Pair) set(certPEM, keyPEM []byte) error {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return err
	}
	p.certPEM = certPEM
	p.keyPEM = keyPEM
	p.current.Store(&pair)
	return nil
}

// Bundle is a set of trusted CA certificates.
type Bundle struct {
	file string

	mu      sync.Mutex // serializes Reload; leaf lock
	current atomic.Pointer[bundle]
}

// bundle is the content of a file of CA certificates.
type bundle struct {
	pem   []byte
	certs []*x509.Certificate
	pool  *x509.CertPool
}

// LoadBundle reads a PEM file with one certificate or more.
func LoadBundle(file string) (*Bundle, error) {
	b := &Bundle{file: file}
	if _, err := b.Reload(); err != nil {
		return nil, err
	}
	return b, nil
}

// Pool returns the certificates in use. The caller must not modify the pool.
func (b *Bundle) Pool() *x509.CertPool { return b.current.Load().pool }

// Certificates returns the certificates in use.
func (b *Bundle) Certificates() []*x509.Certificate { return slices.Clone(b.current.Load().certs) }

// PEM returns the content of the file.
func (b *Bundle) PEM() []byte { return slices.Clone(b.current.Load().pem) }

// FirstExpiring implements ExpiringSource.
func (b *Bundle) FirstExpiring() *x509.Certificate {
	return slices.MinFunc(b.current.Load().certs, func(x, y *x509.Certificate) int { return x.NotAfter.Compare(y.NotAfter) })
}

// Files implements Source.
func (b *Bundle) Files() []string { return []string{b.file} }

// Reload implements Source.
func (b *Bundle) Reload() (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, err := filewatch.Read(b.file)
	if err != nil {
		return false, err
	}
	if old := b.current.Load(); old != nil && bytes.Equal(old.pem, data) {
		return false, nil
	}
	certs, err := ParseCertificates(data)
	if err != nil {
		return false, fmt.Errorf("load %s: %w", b.file, err)
	}
	next := &bundle{pem: data, certs: certs, pool: x509.NewCertPool()}
	for _, c := range certs {
		next.pool.AddCert(c)
	}
	b.current.Store(next)
	return true, nil
}
