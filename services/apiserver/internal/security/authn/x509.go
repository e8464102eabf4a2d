package authn

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/asn1"

	"binnacle/libs/authenticator"
	"binnacle/libs/certchain"
	"binnacle/services/apiserver/internal/request"
)

// Certificates authenticates requests by client certificate: the common name is the user, each
// organization is a group, and the element of apimachinery's X509UID is the uid (Kubernetes
// documentation, "Authenticating", section "X.509 client certificates").
type Certificates struct {
	currentCAs func() *x509.CertPool
	uid        bool
	// verified caches valid certificates by their address: the requests of a connection share one.
	verified *lru.Cache[*x509.Certificate, verification]
	// remainingLifetime observes the remaining lifetime of presented certificates; may be nil.
	remainingLifetime prometheus.Observer
}

// verification is the cached result of verifying a certificate: a signature check costs more than
// the rest of a request.
type verification struct {
	pool  *x509.CertPool // the CA bundle that was used; a reloaded bundle is another pool
	until time.Time
	user  *request.User
	// err is why the certificate is invalid. Only FrontProxy caches invalid certificates: it sees
	// those of all clients, whose authority is usually another one.
	err error
}

// maxVerified is the maximum number of cached certificates.
const maxVerified = 4096

// NewCertificates returns the authenticator. currentCAs returns the CA bundle of clients. If uid is
// set, a certificate may contain the user's uid.
func NewCertificates(currentCAs func() *x509.CertPool, uid bool) (*Certificates, error) {
	cache, err := lru.New[*x509.Certificate, verification](maxVerified)
	if err != nil {
		return nil, err
	}
	return &Certificates{currentCAs: currentCAs, uid: uid, verified: cache}, nil
}

// Authenticate implements Authenticator.
func (c *Certificates) Authenticate(r *http.Request) (*request.User, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	pool := c.currentCAs()
	if pool == nil {
		return nil, nil
	}
	leaf := r.TLS.PeerCertificates[0]
	now := time.Now()
	if c.remainingLifetime != nil {
		c.remainingLifetime.Observe(leaf.NotAfter.Sub(now).Seconds())
	}
	if result, ok := c.verified.Get(leaf); ok && result.validFor(pool, leaf, now) {
		return result.user, nil
	}
	until, err := verifyClient(pool, r.TLS.PeerCertificates, now)
	if err != nil {
		return nil, err
	}
	if leaf.Subject.CommonName == "" { // valid, but without a user
		c.verified.Add(leaf, verification{pool: pool, until: until})
		return nil, nil
	}
	uid, err := c.uidOf(leaf)
	if err != nil {
		return nil, fmt.Errorf("%w: client certificate: %w", ErrInvalid, err)
	}
	id := sha256.Sum256(leaf.Raw)
	user := Authenticated(&request.User{
		Name:   leaf.Subject.CommonName,
		UID:    uid,
		Groups: leaf.Subject.Organization,
		Extra:  map[string][]string{authenticator.ExtraCredentialID: {"X509SHA256=" + hex.EncodeToString(id[:])}},
	})
	c.verified.Add(leaf, verification{pool: pool, until: until, user: user})
	return user, nil
}

// uidOf returns the uid in a certificate, if any. It must occur once, as a string.
func (c *Certificates) uidOf(leaf *x509.Certificate) (uid string, err error) {
	if !c.uid {
		return "", nil
	}
	oid := asn1.X509UID()
	found := false
	for _, attribute := range leaf.Subject.Names {
		if !attribute.Type.Equal(oid) {
			continue
		}
		text, ok := attribute.Value.(string)
		switch {
		case found:
			return "", errors.New("the subject has more than one uid")
		case !ok || text == "":
			return "", errors.New("the subject's uid is not a text, or is empty")
		}
		uid, found = text, true
	}
	return uid, nil
}

// validFor reports whether a cached certificate is still valid.
func (v *verification) validFor(pool *x509.CertPool, leaf *x509.Certificate, now time.Time) bool {
	return v.pool == pool && now.Before(v.until) && !now.Before(leaf.NotBefore)
}

// verifyClient verifies the chain presented by a client and returns its expiry.
func verifyClient(pool *x509.CertPool, presented []*x509.Certificate, now time.Time) (time.Time, error) {
	chains, err := certchain.Verify(presented, x509.VerifyOptions{
		Roots:       pool,
		CurrentTime: now,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: client certificate: %w", ErrInvalid, err)
	}
	return chainExpiry(chains), nil
}

// chainExpiry returns the earliest expiry in the best chain.
func chainExpiry(chains [][]*x509.Certificate) time.Time {
	var latest time.Time
	for _, chain := range chains {
		expiry := chain[0].NotAfter
		for _, c := range chain[1:] {
			if c.NotAfter.Before(expiry) {
				expiry = c.NotAfter
			}
		}
		if expiry.After(latest) {
			latest = expiry
		}
	}
	return latest
}
