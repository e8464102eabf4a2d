package callerauth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

var errNoCertificate = errors.New("no client certificate")

const (
	// Limits of the cache of valid certificates.
	maxCachedClients = 256
	keptFor          = time.Minute
)

// Guard authorizes callers.
type Guard struct {
	options *Options
	verify  func() (x509.VerifyOptions, bool)
	now     func() time.Time

	mu    sync.Mutex // a leaf lock
	known *simplelru.LRU[*x509.Certificate, verified]
}

// verified is a certificate that a pool of roots verified. It lives as long as its connection.
type verified struct {
	roots *x509.CertPool
	until time.Time
}

// NewGuard returns a guard. verify is called with each request, because the options may change;
// false means that there are none.
func NewGuard(o *Options, verify func() (x509.VerifyOptions, bool)) (*Guard, error) {
	known, err := simplelru.NewLRU[*x509.Certificate, verified](maxCachedClients, nil)
	if err != nil {
		return nil, fmt.Errorf("known clients: %w", err)
	}
	return &Guard{options: o, verify: verify, now: time.Now, known: known}, nil
}

// Check returns an error if a request must be rejected.
func (g *Guard) Check(r *http.Request) error {
	if g.options.AnyClient {
		return nil
	}
	return g.verified(r)
}

// Knows reports whether the client presents a valid certificate, also if any client is allowed.
func (g *Guard) Knows(r *http.Request) bool { return g.verified(r) == nil }

// verified returns an error if the client certificate of a request is not valid.
func (g *Guard) verified(r *http.Request) error {
	options, ok := g.verify()
	if !ok || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return errNoCertificate
	}
	leaf := r.TLS.PeerCertificates[0]
	now := g.now()
	g.mu.Lock()
	v, ok := g.known.Get(leaf)
	g.mu.Unlock()
	// The wall clock may have changed in the meantime.
	if ok && v.roots == options.Roots && now.Before(v.until) && !now.Before(leaf.NotBefore) && !now.After(leaf.NotAfter) {
		return nil
	}
	options.CurrentTime = now
	options.Intermediates = x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(options); err != nil {
		return err
	}
	if name := leaf.Subject.CommonName; len(g.options.Names) > 0 && !slices.Contains(g.options.Names, name) {
		return fmt.Errorf("client certificate of %q is not among the allowed clients", name)
	}
	until := now.Add(keptFor)
	if leaf.NotAfter.Before(until) {
		until = leaf.NotAfter
	}
	g.mu.Lock()
	g.known.Add(leaf, verified{roots: options.Roots, until: until})
	g.mu.Unlock()
	return nil
}
