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
	headers    ProxyHeaders
	currentCAs func() *x509.CertPool
	names      []string
	verified   *lru.Cache[[sha256.Size]byte, verification]
}

// NewFrontProxy returns the authenticator. currentCAs returns the CA bundle of proxies. names holds
// the allowed common names; an empty list allows all.
func NewFrontProxy(currentCAs func() *x509.CertPool, names []string, h ProxyHeaders) (*FrontProxy, error) {
	cache, err := lru.New[[sha256.Size]byte, verification](maxVerified)
	if err != nil {
		return nil, err
	}
	return &FrontProxy{headers: h, currentCAs: currentCAs, names: names, verified: cache}, nil
}

// Authenticate implements Authenticator. It rejects a proxy that names one of the suite's own
// services, because they authenticate only by their certificates. It always removes the user
// headers, because later handlers must not trust them.
func (p *FrontProxy) Authenticate(r *http.Request) (*request.User, error) {
	user := p.headers.extractUser(r.Header)
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	if err := p.verify(r.TLS.PeerCertificates); err != nil {
		return nil, err
	}
	if user == nil {
		return nil, nil
	}
	if api.IsSuite(user.Name, user.Groups) {
		return nil, fmt.Errorf("%w: a proxy names the user %q, but the suite's services must authenticate by their certificate",
			ErrInvalid, user.Name)
	}
	return Authenticated(user), nil
}

// rejectionTTL is how long an invalid certificate is cached.
const rejectionTTL = time.Minute

// verify returns an error unless the presented certificate belongs to an authenticating proxy.
// Results are cached.
func (p *FrontProxy) verify(presented []*x509.Certificate) error {
	pool := p.currentCAs()
	leaf := presented[0]
	now := time.Now()
	id := sha256.Sum256(leaf.Raw)
	result, ok := p.verified.Get(id)
	if !ok || !result.validFor(pool, leaf, now) {
		result = verification{pool: pool}
		result.until, result.err = verifyClient(pool, presented, now)
		if result.err != nil {
			result.until = now.Add(rejectionTTL)
		}
		// The same certificate may be valid with another chain.
		if result.err == nil || len(presented) == 1 {
			p.verified.Add(id, result)
		}
	}
	if result.err != nil {
		return result.err
	}
	if cn := leaf.Subject.CommonName; len(p.names) > 0 && !slices.Contains(p.names, cn) {
		return fmt.Errorf("%w: x509: subject with cn=%s is not in the allowed list", ErrInvalid, cn)
	}
	return nil
}

// extractUser removes the user from the headers and returns it, or nil if they name none.
func (h *ProxyHeaders) extractUser(header http.Header) *request.User {
	user := &request.User{}
	for _, name := range h.Username {
		if value := header.Get(name); value != "" && user.Name == "" {
			user.Name = value
		}
	}
	for _, name := range h.UID {
		if value := header.Get(name); value != "" && user.UID == "" {
			user.UID = value
		}
	}
	for _, name := range h.Group {
		user.Groups = append(user.Groups, header.Values(name)...)
	}
	for _, prefix := range h.ExtraPrefix {
		for name, values := range header {
			if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
				continue
			}
			if user.Extra == nil {
				user.Extra = map[string][]string{}
			}
			key := ExtraKey(name[len(prefix):])
			user.Extra[key] = append(user.Extra[key], values...)
			delete(header, name)
		}
	}
	for _, names := range [][]string{h.Username, h.UID, h.Group} {
		for _, name := range names {
			header.Del(name)
		}
	}
	if user.Name == "" {
		return nil
	}
	return user
}

// ExtraKey decodes the key of extra information from the part of a header name after the prefix.
// The part is percent-encoded and its case is not significant.
func ExtraKey(encoded string) string {
	key, err := url.PathUnescape(strings.ToLower(encoded))
	if err != nil {
		return strings.ToLower(encoded)
	}
	return key
}
