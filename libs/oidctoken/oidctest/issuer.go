package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// ClientID is the default audience of the tokens.
const ClientID = "kubernetes"

const (
	metadataPath = "/.well-known/openid-configuration"
	// secondMetadataPath is outside of the issuer URL.
	secondMetadataPath = "/elsewhere"
	keysPath           = "/keys"
	// keyBits is the smallest size that all algorithms support, because tests create many keys.
	keyBits  = 1280
	validity = time.Hour
)

// Provider is an OpenID Connect provider for tests, with a switch for each fault.
type Provider struct {
	t      testing.TB
	server *httptest.Server

	mu               sync.Mutex // leaf lock
	signer           key
	keys             []key // published keys
	issuerURL        string
	metadataOverride any // served instead of the real metadata, unless nil
	statusCode       int
	requests         map[string]int
	holdUntil        chan struct{}
	handlers         map[string]http.HandlerFunc
}

// key is a signing key of the provider.
type key struct {
	id        string
	algorithm string
	private   crypto.Signer
}

// New starts a provider with one RS256 key.
func New(t testing.TB) *Provider {
	t.Helper()
	provider := &Provider{t: t, statusCode: http.StatusOK, requests: map[string]int{}}
	provider.server = httptest.NewTLSServer(http.HandlerFunc(provider.serveHTTP))
	t.Cleanup(provider.server.Close)
	provider.issuerURL = provider.server.URL
	provider.Rotate("RS256")
	return provider
}

// URL returns the provider's URL, which is the issuer of its tokens.
func (p *Provider) URL() string { return p.server.URL }

// CA returns the bundle that verifies the provider's certificate.
func (p *Provider) CA() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}))
}

// Rotate creates a new key for new tokens, and withdraws the others.
func (p *Provider) Rotate(algorithm string) {
	p.t.Helper()
	k := newKey(p.t, algorithm)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signer = k
	p.keys = []key{k}
}

// RotateSecretly creates a new key for new tokens that is not published until publish is called.
func (p *Provider) RotateSecretly(algorithm string) (publish func()) {
	p.t.Helper()
	k := newKey(p.t, algorithm)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signer = k
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.keys = append(p.keys, k)
	}
}

// Serve sets the handler for a path, for example of a claim source.
func (p *Provider) Serve(path string, handlerFunc http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handlers == nil {
		p.handlers = map[string]http.HandlerFunc{}
	}
	p.handlers[path] = handlerFunc
}

// SetStatus sets the status of all responses; 200 is normal.
func (p *Provider) SetStatus(code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.statusCode = code
}

// SetIssuer sets the issuer URL in the metadata.
func (p *Provider) SetIssuer(issuer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.issuerURL = issuer
}

// SetMetadata sets what the provider serves instead of its metadata.
func (p *Provider) SetMetadata(v any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.metadataOverride = v
}

// KeyRequests returns the number of requests for the keys.
func (p *Provider) KeyRequests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[keysPath]
}

// Hold blocks all responses until release is called.
func (p *Provider) Hold() (release func()) {
	hold := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holdUntil = hold
	return sync.OnceFunc(func() {
		p.mu.Lock()
		p.holdUntil = nil
		p.mu.Unlock()
		close(hold)
	})
}

// Claims returns valid claims with changes. A nil value removes a claim.
func (p *Provider) Claims(changes map[string]any) jwt.MapClaims {
	now := time.Now()
	mapClaims := jwt.MapClaims{
		"iss": p.URL(), "aud": ClientID, "sub": "ada",
		"iat": now.Unix(), "exp": now.Add(validity).Unix(),
	}
	maps.Copy(mapClaims, changes)
	maps.DeleteFunc(mapClaims, func(_ string, v any) bool { return v == nil })
	return mapClaims
}

// Token signs a token with Claims.
func (p *Provider) Token(changes map[string]any) string {
	p.t.Helper()
	p.mu.Lock()
	k := p.signer
	p.mu.Unlock()
	return Sign(p.t, jwt.GetSigningMethod(k.algorithm), k.private, k.id, p.Claims(changes))
}

// PublicKey returns the id and public part of the signing key.
func (p *Provider) PublicKey() (id string, public crypto.PublicKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signer.id, p.signer.private.Public()
}

// Sign signs a token with any key.
func Sign(t testing.TB, method jwt.SigningMethod, key any, id string, claims jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	if id != "" {
		token.Header["kid"] = id
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newKey generates a key for an algorithm.
func newKey(t testing.TB, algorithm string) key {
	t.Helper()
	k := key{id: rand.Text(), algorithm: algorithm}
	var err error
	switch algorithm[:2] {
	case "RS", "PS":
		k.private, err = rsa.GenerateKey(rand.Reader, keyBits)
	default:
		curves := map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()}
		k.private, err = ecdsa.GenerateKey(curves[algorithm], rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// serveHTTP serves the metadata and the keys of the provider.
func (p *Provider) serveHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests[r.URL.Path]++
	hold, status := p.holdUntil, p.statusCode
	p.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	if status != http.StatusOK {
		w.WriteHeader(status)
		return
	}
	p.mu.Lock()
	h := p.handlers[r.URL.Path]
	p.mu.Unlock()
	if h != nil {
		h(w, r)
		return
	}
	var body any
	switch r.URL.Path {
	case metadataPath, secondMetadataPath:
		body = p.metadataDocument()
	case keysPath:
		body = p.keySet()
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	raw, err := json.Marshal(body)
	if err != nil {
		p.t.Errorf("write the response of %s: %v", r.URL.Path, err)
	}
	_, _ = w.Write(raw) // the client may have disconnected
}

func (p *Provider) metadataDocument() any {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.metadataOverride != nil {
		return p.metadataOverride
	}
	return map[string]any{"issuer": p.issuerURL, "jwks_uri": p.URL() + keysPath}
}

// keySet returns the keys, and entries that readers must ignore.
func (p *Provider) keySet() any {
	p.mu.Lock()
	defer p.mu.Unlock()
	set := []any{
		map[string]string{"kty": "unheard-of", "kid": "x"},
		map[string]string{"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
	}
	for _, k := range p.keys {
		set = append(set, jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Algorithm: k.algorithm, Use: "sig"})
	}
	return map[string]any{"keys": set}
}

// DiscoveryURL returns a second URL of the metadata.
func (p *Provider) DiscoveryURL() string { return p.URL() + secondMetadataPath }
