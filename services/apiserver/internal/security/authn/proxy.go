package authn

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/request"
)

// ProxyHeaders are the headers in which an authenticating proxy passes the user (specification:
// "Authenticating proxy headers").
type ProxyHeaders struct {
	Username, UID, Group []string
	ExtraPrefix          []string
}

// FrontProxy takes the user from the headers of a proxy that authenticates by its client
// certificate.
type FrontProxy struct {
	headers  ProxyHeaders
	cas      func() *x509.CertPool
	names    []string
	verified *lru.Cache[[sha256.Size]byte, verification]
}

// NewFrontProxy returns the authenticator. cas returns the current CA bundle of proxies. names are
// the allowed common names; none allows all.
func NewFrontProxy(cas func() *x509.CertPool, names []string, h ProxyHeaders) (*FrontProxy, error) {
	cache, err := lru.New[[sha256.Size]byte, verification](verifiedCertificates)
	if err != nil {
		return nil, err
	}
	return &FrontProxy{headers: h, cas: cas, names: names, verified: cache}, nil
}

// Authenticate implements Authenticator. The suite's own services authenticate only by their
// certificates, so a proxy cannot name one. It always removes the user headers, because they have
// no meaning for later handlers.
func (p *FrontProxy) Authenticate(r *http.Request) (*request.User, error) {
	u := p.headers.take(r.Header)
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	if err := p.verify(r.TLS.PeerCertificates); err != nil {
		return nil, err
	}
	if u == nil {
		return nil, nil
	}
	if api.IsSuite(u.Name, u.Groups) {
		return nil, fmt.Errorf("%w: a proxy names the user %q, but the suite's services must authenticate by their certificate", ErrInvalid, u.Name)
	}
	return Authenticated(u), nil
}

// verify returns an error unless the presented certificate belongs to an authenticating proxy.
// Results are cached.
func (p *FrontProxy) verify(presented []*x509.Certificate) error {
	pool := p.cas()
	leaf := presented[0]
	now := time.Now()
	id := sha256.Sum256(leaf.Raw)
	v, ok := p.verified.Get(id)
	if !ok || !v.validFor(pool, leaf, now) {
		v = verification{pool: pool}
		v.until, v.err = verifyClient(pool, presented, now)
		if v.err != nil {
			v.until = now.Add(rejectionTTL)
		}
		// The same certificate may be valid with another chain.
		if v.err == nil || len(presented) == 1 {
			p.verified.Add(id, v)
		}
	}
	if v.err != nil {
		return v.err
	}
	if cn := leaf.Subject.CommonName; len(p.names) > 0 && !slices.Contains(p.names, cn) {
		return fmt.Errorf("%w: x509: subject with cn=%s is not in the allowed list", ErrInvalid, cn)
	}
	return nil
}

// take removes the user from the headers and returns it, or nil if they name none.
func (h *ProxyHeaders) take(in http.Header) *request.User {
	u := &request.User{}
	for _, name := range h.Username {
		if v := in.Get(name); v != "" && u.Name == "" {
			u.Name = v
		}
	}
	for _, name := range h.UID {
		if v := in.Get(name); v != "" && u.UID == "" {
			u.UID = v
		}
	}
	for _, name := range h.Group {
		u.Groups = append(u.Groups, in.Values(name)...)
	}
	for _, prefix := range h.ExtraPrefix {
		for name, values := range in {
			if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
				continue
			}
			if u.Extra == nil {
				u.Extra = map[string][]string{}
			}
			key := ExtraKey(name[len(prefix):])
			u.Extra[key] = append(u.Extra[key], values...)
			delete(in, name)
		}
	}
	for _, names := range [][]string{h.Username, h.UID, h.Group} {
		for _, name := range names {
			in.Del(name)
		}
	}
	if u.Name == "" {
		return nil
	}
	return u
}

// ExtraKey decodes the key of extra information from the rest of a header name: lower case,
// percent-encoded where a header name cannot contain a character.
func ExtraKey(encoded string) string {
	key, err := url.PathUnescape(strings.ToLower(encoded))
	if err != nil {
		return strings.ToLower(encoded)
	}
	return key
}
