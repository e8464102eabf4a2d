package callers

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
	// What was found good is kept for as many connections, and so long.
	keptClients = 256
	keptFor     = time.Minute
)

// Guard decides who may ask.
type Guard struct {
	options *Options
	verify  func() (x509.VerifyOptions, bool)
	now     func() time.Time

	mu    sync.Mutex // a leaf
	known *simplelru.LRU[*x509.Certificate, verified]
}

// verified is a certificate, which lives as long as its connection, that was
// found good by a pool of roots.
type verified struct {
	roots *x509.CertPool
	until time.Time
}

// NewGuard makes a guard. What certificates are verified by is asked for with each
// request, as it may change; false means that there is nothing.
func NewGuard(o *Options, verify func() (x509.VerifyOptions, bool)) (*Guard, error) {
	known, err := simplelru.NewLRU[*x509.Certificate, verified](keptClients, nil)
	if err != nil {
		return nil, fmt.Errorf("known clients: %w", err)
	}
	return &Guard{options: o, verify: verify, now: time.Now, known: known}, nil
}

// Check returns why a request is not answered.
func (g *Guard) Check(r *http.Request) error {
	if g.options.Anybody {
		return nil
	}
	return g.verified(r)
}

// Knows tells whether who asks shows a certificate that is good, also where anybody may ask.
func (g *Guard) Knows(r *http.Request) bool { return g.verified(r) == nil }

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
	// The wall clock may have been set meanwhile.
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
		return fmt.Errorf("client certificate of %q is not of a client that may ask", name)
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
