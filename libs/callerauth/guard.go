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

	"binnacle/libs/certchain"
)

var errNoCertificate = errors.New("no client certificate")

const (
	// Limits of the cache of valid certificates.
	maxCachedClients = 256
	cacheDuration    = time.Minute
)

// Guard authorizes callers.
type Guard struct {
	options *Options
	verify  func() (x509.VerifyOptions, bool)
	now     func() time.Time

	mu    sync.Mutex // leaf lock
	cache *simplelru.LRU[*x509.Certificate, cachedVerification]
}

// cachedVerification is the successful verification of a certificate by a pool of roots.
type cachedVerification struct {
	roots *x509.CertPool
	until time.Time
}

// NewGuard returns a guard. verify is called with each request, because the options may change;
// false means that there are none.
func NewGuard(options *Options, verify func() (x509.VerifyOptions, bool)) (*Guard, error) {
	known, err := simplelru.NewLRU[*x509.Certificate, cachedVerification](maxCachedClients, nil)
	if err != nil {
		return nil, fmt.Errorf("cache of client certificates: %w", err)
	}
	return &Guard{options: options, verify: verify, now: time.Now, cache: known}, nil
}

// Check returns an error if a request must be rejected.
func (g *Guard) Check(r *http.Request) error {
	if g.options.AnyClient {
		return nil
	}
	return g.verifyCertificate(r)
}

// HasValidCertificate reports whether the client presents a valid certificate, even if any client is
// allowed.
func (g *Guard) HasValidCertificate(r *http.Request) bool { return g.verifyCertificate(r) == nil }

// verifyCertificate returns an error if the client certificate of a request is not valid.
func (g *Guard) verifyCertificate(r *http.Request) error {
	options, ok := g.verify()
	if !ok || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return errNoCertificate
	}
	leaf := r.TLS.PeerCertificates[0]
	now := g.now()
	g.mu.Lock()
	v, ok := g.cache.Get(leaf)
	g.mu.Unlock()
	isCached := ok && v.roots == options.Roots && now.Before(v.until)
	if isCached && !now.Before(leaf.NotBefore) && !now.After(leaf.NotAfter) { // the wall clock may have changed
		return nil
	}
	options.CurrentTime = now
	if _, err := certchain.Verify(r.TLS.PeerCertificates, options); err != nil {
		return err
	}
	if name := leaf.Subject.CommonName; len(g.options.Names) > 0 && !slices.Contains(g.options.Names, name) {
		return fmt.Errorf("client certificate of %q is not among the allowed clients", name)
	}
	until := now.Add(cacheDuration)
	if leaf.NotAfter.Before(until) {
		until = leaf.NotAfter
	}
	g.mu.Lock()
	g.cache.Add(leaf, cachedVerification{roots: options.Roots, until: until})
	g.mu.Unlock()
	return nil
}
