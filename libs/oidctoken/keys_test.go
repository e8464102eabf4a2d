package oidctoken_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"binnacle/libs/oidctoken"
	"binnacle/libs/oidctoken/oidctest"
)

// TestKeysThatDoNotCount: a published key verifies what it is for, and says that it is.
func TestKeysThatDoNotCount(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		published jose.JSONWebKey
		kid       string
		accepted  bool
	}{
		"for signatures":           {jose.JSONWebKey{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}, "k", true},
		"for whatever":             {jose.JSONWebKey{Key: key.Public(), KeyID: "k"}, "k", true},
		"of a token without an id": {jose.JSONWebKey{Key: key.Public(), KeyID: "k"}, "", true},
		"of another id":            {jose.JSONWebKey{Key: key.Public(), KeyID: "k"}, "l", false},
		"for encryption":           {jose.JSONWebKey{Key: key.Public(), KeyID: "k", Use: "enc"}, "k", false},
		"for another algorithm":    {jose.JSONWebKey{Key: key.Public(), KeyID: "k", Algorithm: "ES384"}, "k", false},
		"with its private half":    {jose.JSONWebKey{Key: key, KeyID: "k", Algorithm: "ES256", Use: "sig"}, "k", false},
	} {
		t.Run(name, func(t *testing.T) {
			set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{c.published, {Key: other.Public(), KeyID: "other", Algorithm: "ES256", Use: "sig"}}}
			s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(set) }))
			defer s.Close()
			issuer := oidctest.New(t)
			issuer.SetMetadata(map[string]any{"issuer": issuer.URL(), "jwks_uri": s.URL})
			ca := issuer.CA() + "\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
			p := provider(t, oidctoken.ProviderConfig{IssuerURL: issuer.URL(), CA: ca, Algorithms: []string{"ES256"}})
			a, err := oidctoken.New(p, []string{oidctest.ClientID}, bySubject)
			if err != nil {
				t.Fatal(err)
			}
			run(t, p)
			select {
			case <-p.Initialized():
			case <-time.After(30 * time.Second):
				t.Fatal("no keys")
			}
			token := oidctest.Sign(t, jwt.SigningMethodES256, key, c.kid, issuer.Claims(nil))
			if _, ok, err := a.AuthenticateToken(t.Context(), token, nil); ok != c.accepted {
				t.Errorf("accepted %v, %v", ok, err)
			}
		})
	}
}
