package oidctoken_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"binnacle/libs/authenticator"
	"binnacle/libs/oidctoken"
	"binnacle/libs/oidctoken/oidctest"
)

// authenticatorWithKeys returns an issuer that publishes a key set, and an authenticator that has
// read it.
func authenticatorWithKeys(t *testing.T, set jose.JSONWebKeySet) (*oidctest.Provider, *oidctoken.Authenticator) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(set)
	}))
	t.Cleanup(server.Close)
	issuer := oidctest.New(t)
	issuer.SetMetadata(map[string]any{"issuer": issuer.URL(), "jwks_uri": server.URL})
	ca := issuer.CA() + "\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	provider := newProvider(t, oidctoken.ProviderConfig{IssuerURL: issuer.URL(), CA: ca, Algorithms: []string{"ES256"}})
	a, err := oidctoken.New(provider, []string{oidctest.ClientID}, bySubject)
	if err != nil {
		t.Fatal(err)
	}
	runProvider(t, provider)
	select {
	case <-provider.Initialized():
	case <-time.After(30 * time.Second):
		t.Fatal("got no keys within 30 s, want those of the issuer")
	}
	return issuer, a
}

// TestUnusableKeysAreIgnored checks that a published key is used only for its purpose and
// algorithm.
func TestUnusableKeysAreIgnored(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	otherKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		published jose.JSONWebKey
		keyID     string
		accepted  bool
	}{
		"for signatures": {
			published: jose.JSONWebKey{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"},
			keyID:     "k",
			accepted:  true,
		},
		"for any purpose":           {published: jose.JSONWebKey{Key: key.Public(), KeyID: "k"}, keyID: "k", accepted: true},
		"token without a key id":    {published: jose.JSONWebKey{Key: key.Public(), KeyID: "k"}, keyID: "", accepted: true},
		"token with another key id": {published: jose.JSONWebKey{Key: key.Public(), KeyID: "k"}, keyID: "l", accepted: false},
		"for encryption": {
			published: jose.JSONWebKey{Key: key.Public(), KeyID: "k", Use: "enc"},
			keyID:     "k",
			accepted:  false,
		},
		"for another algorithm": {
			published: jose.JSONWebKey{Key: key.Public(), KeyID: "k", Algorithm: "ES384"},
			keyID:     "k",
			accepted:  true,
		},
		"private key": {
			published: jose.JSONWebKey{Key: key, KeyID: "k", Algorithm: "ES256", Use: "sig"},
			keyID:     "k",
			accepted:  false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{test.published,
				{Key: otherKey.Public(), KeyID: "other", Algorithm: "ES256", Use: "sig"}}}
			issuer, tokens := authenticatorWithKeys(t, set)
			token := oidctest.Sign(t, jwt.SigningMethodES256, key, test.keyID, issuer.Claims(nil))
			if _, ok, err := tokens.AuthenticateToken(t.Context(), token, nil); ok != test.accepted {
				t.Errorf("authenticated = %v, error: %v, want %v", ok, err, test.accepted)
			}
		})
	}
}

// TestTokenIsVerifiedWithFewKeys checks that only the first eight keys with the id of a token are
// tried, because an issuer could publish many costly ones.
func TestTokenIsVerifiedWithFewKeys(t *testing.T) {
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	otherKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for otherKeys, want := range map[int]bool{7: true, 8: false} {
		published := jose.JSONWebKeySet{Keys: append(slices.Repeat([]jose.JSONWebKey{{Key: otherKey.Public(), KeyID: "k"}},
			otherKeys), jose.JSONWebKey{Key: signer.Public(), KeyID: "k"})}
		issuer, tokens := authenticatorWithKeys(t, published)
		token := oidctest.Sign(t, jwt.SigningMethodES256, signer, "k", issuer.Claims(nil))
		if _, ok, err := tokens.AuthenticateToken(t.Context(), token, nil); ok != want {
			t.Errorf("%d other keys: authenticated = %v, error: %v, want %v", otherKeys, ok, err, want)
		}
	}
}

// TestInvalidKeySetsAreRejected checks key sets that are invalid or too large.
func TestInvalidKeySetsAreRejected(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keySet := func(count int) string {
		raw, err := json.Marshal(jose.JSONWebKeySet{Keys: slices.Repeat([]jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}, count)})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	for name, test := range map[string]struct {
		response func(http.ResponseWriter, *http.Request)
		want     string // of the failure, if it fails
	}{
		"many keys": {response: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, keySet(256)) }, want: ""},
		"too many keys": {response: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, keySet(257)) },
			want: "has 257 keys, want at most 256"},
		"keys that are expensive to verify with": {response: func(w http.ResponseWriter, _ *http.Request) {
			large := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 16384, 1), E: 65537}
			long := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 8191, 1), E: 1<<31 - 1}
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
				{Key: large, KeyID: "k"},
				{Key: long, KeyID: "k"},
			}})
		}, want: "has no signing key"},
		"long header": {response: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 128<<10))
			fmt.Fprint(w, keySet(1))
		}, want: "response headers exceeded"},
		"many certificates": {response: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, keySet(1)) },
			want: "11 certificates were presented"},
		"no keys": {
			response: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, keySet(0)) },
			want:     "has no signing key",
		},
		"no key set": {response: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "[]") }, want: "cannot unmarshal"},
		"cut short": {response: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			fmt.Fprint(w, keySet(1))
		}, want: "unexpected EOF"},
		"redirected": {
			response: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) },
			want:     "too many redirects",
		},
		"redirected to plain": {response: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost/", http.StatusFound)
		}, want: "want https"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(test.response))
			defer server.Close()
			if name == "many certificates" {
				server.TLS.Certificates[0].Certificate = slices.Repeat(server.TLS.Certificates[0].Certificate, 11)
			}
			issuer := oidctest.New(t)
			issuer.SetMetadata(map[string]any{"issuer": issuer.URL(), "jwks_uri": server.URL})
			ca := issuer.CA() + "\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
			config := oidctoken.ProviderConfig{IssuerURL: issuer.URL(), CA: ca, Algorithms: []string{"ES256"}}
			logged := make(chan string, 1)
			provider, err := oidctoken.NewProvider(config, slog.New(&firstError{logged: logged}))
			if err != nil {
				t.Fatal(err)
			}
			tokens, err := oidctoken.New(provider, []string{oidctest.ClientID}, bySubject)
			if err != nil {
				t.Fatal(err)
			}
			runProvider(t, provider)
			<-provider.Initialized()
			token := oidctest.Sign(t, jwt.SigningMethodES256, key, "k", issuer.Claims(nil))
			_, ok, err := tokens.AuthenticateToken(t.Context(), token, nil)
			if test.want == "" {
				if !ok || err != nil {
					t.Errorf("authenticated = %v, error: %v, want true, no error", ok, err)
				}
				return
			}
			if ok || !errors.Is(err, authenticator.ErrUnavailable) {
				t.Errorf("authenticated = %v, error: %v, want unavailable", ok, err)
			}
			if got := <-logged; !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestConfigEqualComparesAllFieldsButWithdrawn checks that every field but Withdrawn counts.
func TestConfigEqualComparesAllFieldsButWithdrawn(t *testing.T) {
	newConfig := func() oidctoken.ProviderConfig {
		return oidctoken.ProviderConfig{
			IssuerURL:    "https://x",
			DiscoveryURL: "https://y",
			CA:           "c",
			Algorithms:   []string{"RS256", "ES256"},
		}
	}
	if !newConfig().Equal(newConfig()) {
		t.Errorf("Equal() of two equal configurations %+v = false, want true", newConfig())
	}
	for name, change := range map[string]func(*oidctoken.ProviderConfig){
		"issuer":     func(c *oidctoken.ProviderConfig) { c.IssuerURL = "https://z" },
		"discovery":  func(c *oidctoken.ProviderConfig) { c.DiscoveryURL = "" },
		"authority":  func(c *oidctoken.ProviderConfig) { c.CA = "d" },
		"algorithms": func(c *oidctoken.ProviderConfig) { c.Algorithms = c.Algorithms[:1] },
	} {
		changed := newConfig()
		change(&changed)
		if newConfig().Equal(changed) {
			t.Errorf("configurations with different %s: got equal, want different", name)
		}
	}
}
