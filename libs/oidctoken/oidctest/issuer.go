package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"fmt"
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
	keysPath     = "/keys"
	// keyBits is the smallest size that all algorithms support, because tests create many keys.
	keyBits  = 1280
	validity = time.Hour
)

// Issuer is a provider.
type Issuer struct {
	t      testing.TB
	server *httptest.Server

	mu         sync.Mutex // leaf lock
	signer     key
	keys       []key // published keys
	issuer     string
	metadata   any // replaces the metadata; nil for the real one
	statusCode int
	requests   map[string]int
	holdUntil  chan struct{}
	handlers   map[string]http.HandlerFunc
}

// key is a signing key of the issuer.
type key struct {
	id        string
	algorithm string
	private   crypto.Signer
}

// New starts a provider with one RS256 key.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, statusCode: http.StatusOK, requests: map[string]int{}}
	i.server = httptest.NewTLSServer(http.HandlerFunc(i.serveHTTP))
	t.Cleanup(i.server.Close)
	i.issuer = i.server.URL
	i.Rotate("RS256")
	return i
}

// URL returns the issuer's URL.
func (i *Issuer) URL() string { return i.server.URL }

// CA returns the bundle that verifies the provider's certificate.
func (i *Issuer) CA() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw}))
}

// Rotate creates a new key for new tokens, and withdraws the others.
func (i *Issuer) Rotate(algorithm string) {
	i.t.Helper()
	k := newKey(i.t, algorithm)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signer = k
	i.keys = []key{k}
}

// RotateSecretly creates a new key for new tokens that is not published until publish is called.
func (i *Issuer) RotateSecretly(algorithm string) (publish func()) {
	i.t.Helper()
	k := newKey(i.t, algorithm)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signer = k
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.keys = append(i.keys, k)
	}
}

// Serve sets the handler for a path, for example of a claim source.
func (i *Issuer) Serve(path string, h http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.handlers == nil {
		i.handlers = map[string]http.HandlerFunc{}
	}
	i.handlers[path] = h
}

// SetStatus sets the status of all responses; 200 is normal.
func (i *Issuer) SetStatus(code int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.statusCode = code
}

// SetIssuer sets the issuer in the metadata.
func (i *Issuer) SetIssuer(issuer string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.issuer = issuer
}

// SetMetadata replaces the metadata.
func (i *Issuer) SetMetadata(v any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.metadata = v
}

// KeyRequests returns the number of requests for the keys.
func (i *Issuer) KeyRequests() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.requests[keysPath]
}

// Hold blocks all responses until release is called.
func (i *Issuer) Hold() (release func()) {
	hold := make(chan struct{})
	i.mu.Lock()
	defer i.mu.Unlock()
	i.holdUntil = hold
	return sync.OnceFunc(func() {
		i.mu.Lock()
		i.holdUntil = nil
		i.mu.Unlock()
		close(hold)
	})
}

// Claims returns valid claims with changes. A nil value removes a claim.
func (i *Issuer) Claims(changes map[string]any) jwt.MapClaims {
	now := time.Now()
	c := jwt.MapClaims{
		"iss": i.URL(), "aud": ClientID, "sub": "ada",
		"iat": now.Unix(), "exp": now.Add(validity).Unix(),
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// Token signs a token with Claims.
func (i *Issuer) Token(changes map[string]any) string {
	i.t.Helper()
	i.mu.Lock()
	k := i.signer
	i.mu.Unlock()
	return Sign(i.t, jwt.GetSigningMethod(k.algorithm), k.private, k.id, i.Claims(changes))
}

// PublicKey returns the id and public part of the signing key.
func (i *Issuer) PublicKey() (id string, public crypto.PublicKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.signer.id, i.signer.private.Public()
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

// serveHTTP serves the metadata and the keys of the issuer.
func (i *Issuer) serveHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.requests[r.URL.Path]++
	hold, status := i.holdUntil, i.statusCode
	i.mu.Unlock()
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
	i.mu.Lock()
	h := i.handlers[r.URL.Path]
	i.mu.Unlock()
	if h != nil {
		h(w, r)
		return
	}
	var body any
	switch r.URL.Path {
	case metadataPath, "/elsewhere":
		body = i.metadataDocument()
	case keysPath:
		body = i.keySet()
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	raw, err := json.Marshal(body)
	if err != nil {
		i.t.Errorf("write the response of %s: %v", r.URL.Path, err)
	}
	_, _ = w.Write(raw) // the client may have disconnected
}

func (i *Issuer) metadataDocument() any {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.metadata != nil {
		return i.metadata
	}
	return map[string]any{"issuer": i.issuer, "jwks_uri": i.URL() + keysPath}
}

// keySet returns the keys, and entries that readers must ignore.
func (i *Issuer) keySet() any {
	i.mu.Lock()
	defer i.mu.Unlock()
	set := []any{
		map[string]string{"kty": "unheard-of", "kid": "x"},
		map[string]string{"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
	}
	for _, k := range i.keys {
		set = append(set, jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Algorithm: k.algorithm, Use: "sig"})
	}
	return map[string]any{"keys": set}
}

// DiscoveryURL returns a second URL of the metadata.
func (i *Issuer) DiscoveryURL() string { return fmt.Sprintf("%s/elsewhere", i.URL()) }
