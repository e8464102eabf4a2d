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

// ClientID is the audience of the tokens, unless the caller names another.
const ClientID = "kubernetes"

const (
	metadataPath = "/.well-known/openid-configuration"
	keysPath     = "/keys"
	// keyBits is the least that all algorithms sign with: keys for a test are
	// made by the dozen.
	keyBits  = 1280
	validity = time.Hour
)

// Issuer is a provider.
type Issuer struct {
	t      testing.TB
	server *httptest.Server

	mu       sync.Mutex // leaf
	signer   key
	keys     []key // that are served
	issuer   string
	metadata any // in place of the true one
	status   int
	asked    map[string]int
	hold     chan struct{}
	served   map[string]http.HandlerFunc
}

type key struct {
	id        string
	algorithm string
	private   crypto.Signer
}

// New starts a provider with one RS256 key.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, status: http.StatusOK, asked: map[string]int{}}
	i.server = httptest.NewTLSServer(http.HandlerFunc(i.serve))
	t.Cleanup(i.server.Close)
	i.issuer = i.server.URL
	i.Rotate("RS256")
	return i
}

// URL is the issuer's URL.
func (i *Issuer) URL() string { return i.server.URL }

// CA is the bundle that the provider's certificate is verified with.
func (i *Issuer) CA() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw}))
}

// Rotate makes a new key for new tokens, and withdraws those before.
func (i *Issuer) Rotate(algorithm string) {
	i.t.Helper()
	k := newKey(i.t, algorithm)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signer, i.keys = k, []key{k}
}

// RotateSecretly makes a new key for new tokens that is not served yet; Publish
// serves it.
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

// Serve makes the provider's server call h for a path, for example that of a
// claim source.
func (i *Issuer) Serve(path string, h http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.served == nil {
		i.served = map[string]http.HandlerFunc{}
	}
	i.served[path] = h
}

// SetStatus makes the provider answer with a status, 200 being the good one.
func (i *Issuer) SetStatus(code int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.status = code
}

// SetIssuer makes the metadata name another issuer.
func (i *Issuer) SetIssuer(issuer string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.issuer = issuer
}

// SetMetadata replaces the metadata altogether.
func (i *Issuer) SetMetadata(v any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.metadata = v
}

// Asked tells how often the keys were read.
func (i *Issuer) Asked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[keysPath]
}

// Hold makes the provider keep its clients waiting until release is called.
func (i *Issuer) Hold() (release func()) {
	hold := make(chan struct{})
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hold = hold
	return sync.OnceFunc(func() {
		i.mu.Lock()
		i.hold = nil
		i.mu.Unlock()
		close(hold)
	})
}

// Claims are good claims, with changes: a nil value takes a claim out.
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

// PublicKey is that of the key that signs.
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

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.asked[r.URL.Path]++
	hold, status := i.hold, i.status
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
	h := i.served[r.URL.Path]
	i.mu.Unlock()
	if h != nil {
		h(w, r)
		return
	}
	var body any
	switch r.URL.Path {
	case metadataPath, "/elsewhere":
		body = i.describe()
	case keysPath:
		body = i.keySet()
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	raw, err := json.Marshal(body)
	if err != nil {
		i.t.Errorf("answer %s: %v", r.URL.Path, err)
	}
	_, _ = w.Write(raw) // who asked may have heard enough
}

func (i *Issuer) describe() any {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.metadata != nil {
		return i.metadata
	}
	return map[string]any{"issuer": i.issuer, "jwks_uri": i.URL() + keysPath}
}

// keySet has, beside the keys, what a reader must pass over.
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

// DiscoveryURL is a second place of the metadata.
func (i *Issuer) DiscoveryURL() string { return fmt.Sprintf("%s/elsewhere", i.URL()) }
