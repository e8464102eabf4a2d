package oidctoken_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"binnacle/libs/authenticator"
	"binnacle/libs/oidctoken"
	"binnacle/libs/oidctoken/oidctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runProvider runs a provider until the test ends.
func runProvider(t testing.TB, provider *oidctoken.Provider) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := provider.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want error %v", err, context.Canceled)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func newProvider(t testing.TB, config oidctoken.ProviderConfig) *oidctoken.Provider {
	t.Helper()
	p, err := oidctoken.NewProvider(config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// initializedAuthenticator returns an authenticator with an initialized provider.
func initializedAuthenticator(t testing.TB, issuer *oidctest.Provider, rules oidctoken.Rules,
	algorithms ...string) *oidctoken.Authenticator {
	t.Helper()
	provider := newProvider(t, oidctoken.ProviderConfig{IssuerURL: issuer.URL(), CA: issuer.CA(), Algorithms: algorithms})
	tokens, err := oidctoken.New(provider, []string{oidctest.ClientID, "second"}, rules)
	if err != nil {
		t.Fatal(err)
	}
	runProvider(t, provider)
	<-provider.Initialized()
	return tokens
}

var bySubject = oidctoken.ClaimRules{UsernameClaim: "sub", UsernamePrefix: "oidc:", GroupsClaim: "groups", GroupsPrefix: "g:"}

// TestValidTokensMapToUsers maps valid tokens to users by several rules.
func TestValidTokensMapToUsers(t *testing.T) {
	issuer := oidctest.New(t)
	email := oidctoken.ClaimRules{UsernameClaim: "email"}
	required := oidctoken.ClaimRules{UsernameClaim: "sub", Required: map[string]string{"hd": "example.org", "tier": "gold"}}
	tests := []struct {
		name    string
		rules   oidctoken.Rules
		changes map[string]any
		want    authenticator.User
	}{
		{name: "subject", rules: bySubject, changes: nil, want: authenticator.User{Name: "oidc:ada"}},
		{
			name:    "token id",
			rules:   bySubject,
			changes: map[string]any{"jti": "t-1"},
			want: authenticator.User{
				Name:  "oidc:ada",
				Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=t-1"}},
			},
		},
		{
			name:    "token id that is not a string",
			rules:   bySubject,
			changes: map[string]any{"jti": 1},
			want:    authenticator.User{Name: "oidc:ada"},
		},
		{name: "empty token id", rules: bySubject, changes: map[string]any{"jti": ""}, want: authenticator.User{Name: "oidc:ada"}},
		{
			name:    "unverified email that is not the username",
			rules:   bySubject,
			changes: map[string]any{"email": "a@b.c", "email_verified": false},
			want:    authenticator.User{Name: "oidc:ada"},
		},
		{
			name:    "groups",
			rules:   bySubject,
			changes: map[string]any{"groups": []string{"a", "b"}},
			want:    authenticator.User{Name: "oidc:ada", Groups: []string{"g:a", "g:b"}},
		},
		{
			name:    "one group",
			rules:   bySubject,
			changes: map[string]any{"groups": "a"},
			want:    authenticator.User{Name: "oidc:ada", Groups: []string{"g:a"}},
		},
		{
			name:    "one of many audiences",
			rules:   bySubject,
			changes: map[string]any{"aud": []string{"x", "second"}},
			want:    authenticator.User{Name: "oidc:ada"},
		},
		{
			name:    "email verified",
			rules:   email,
			changes: map[string]any{"email": "a@b.c", "email_verified": true},
			want:    authenticator.User{Name: "a@b.c"},
		},
		{
			name:    "email without email_verified",
			rules:   email,
			changes: map[string]any{"email": "a@b.c"},
			want:    authenticator.User{Name: "a@b.c"},
		},
		{
			name:    "required claims",
			rules:   required,
			changes: map[string]any{"hd": "example.org", "tier": "gold"},
			want:    authenticator.User{Name: "ada"},
		},
		{
			name:    "not before, within the leeway",
			rules:   bySubject,
			changes: map[string]any{"nbf": time.Now().Add(time.Minute - time.Second).Unix()},
			want:    authenticator.User{Name: "oidc:ada"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tokens := initializedAuthenticator(t, issuer, tt.rules)
			resp, ok, err := tokens.AuthenticateToken(t.Context(), issuer.Token(tt.changes), nil)
			if err != nil || !ok {
				t.Fatalf("got %v, %v, want an authenticated user", ok, err)
			}
			if remaining := time.Until(resp.Expires); remaining < 50*time.Minute || remaining > time.Hour {
				t.Errorf("expires in %v, want at least %v and at most %v", remaining, 50*time.Minute, time.Hour)
			}
			if resp.User.Name != tt.want.Name || !slices.Equal(resp.User.Groups, tt.want.Groups) ||
				!reflect.DeepEqual(resp.User.Extra, tt.want.Extra) {
				t.Errorf("got %+v, want name %q, groups %q, extra %v", resp.User, tt.want.Name, tt.want.Groups, tt.want.Extra)
			}
		})
	}
}

// TestInvalidTokensAreRejectedOrIgnored rejects or ignores tokens that are damaged or are from
// another issuer.
func TestInvalidTokensAreRejectedOrIgnored(t *testing.T) {
	issuer := oidctest.New(t)
	keyID, public := issuer.PublicKey()
	publicDER, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	otherKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	tokenWith := func(changes map[string]any) string { return issuer.Token(changes) }
	validToken := tokenWith(nil)
	unsigned := validToken[:strings.LastIndex(validToken, ".")+1]
	payload := strings.Split(validToken, ".")[1]
	email := oidctoken.ClaimRules{UsernameClaim: "email"}
	required := oidctoken.ClaimRules{UsernameClaim: "sub", Required: map[string]string{"hd": "example.org"}}
	hour := time.Hour
	complete := `{"iss":"` + issuer.URL() + `"}`
	complete += strings.Repeat(" ", (3-len(complete)%3)%3)
	// An empty want means that the token is not of this issuer, which is not an error.
	tests := []struct {
		name  string
		rules oidctoken.Rules
		token string
		want  string
	}{
		{name: "expired", rules: bySubject, token: tokenWith(map[string]any{"exp": time.Now().Add(-hour).Unix()}), want: "expired"},
		{name: "without expiry", rules: bySubject, token: tokenWith(map[string]any{"exp": nil}), want: "expired"},
		{name: "not yet valid", rules: bySubject, token: tokenWith(map[string]any{"nbf": time.Now().Add(hour).Unix()}), want: "nbf"},
		{
			name:  "nbf two minutes ahead",
			rules: bySubject,
			token: tokenWith(map[string]any{"nbf": time.Now().Add(2 * time.Minute).Unix()}),
			want:  "nbf",
		},
		{name: "wrong issuer", rules: bySubject, token: tokenWith(map[string]any{"iss": "https://other"}), want: ""},
		{name: "issuer is not a string", rules: bySubject, token: tokenWith(map[string]any{"iss": 1}), want: ""},
		{name: "no issuer", rules: bySubject, token: tokenWith(map[string]any{"iss": nil}), want: ""},
		{name: "wrong audience", rules: bySubject, token: tokenWith(map[string]any{"aud": "x"}), want: "expected audience"},
		{name: "no audience", rules: bySubject, token: tokenWith(map[string]any{"aud": nil}), want: "expected audience"},
		{
			name:  "algorithm none",
			rules: bySubject,
			token: oidctest.Sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, keyID, issuer.Claims(nil)),
			want:  "malformed jwt",
		},
		{
			name:  "HS256 with the public key",
			rules: bySubject,
			token: oidctest.Sign(t, jwt.SigningMethodHS256, publicDER, keyID, issuer.Claims(nil)),
			want:  "malformed jwt",
		},
		{
			name:  "HS256 with the published secret",
			rules: bySubject,
			token: oidctest.Sign(t, jwt.SigningMethodHS256, []byte("secret"), "shared", issuer.Claims(nil)),
			want:  "malformed jwt",
		},
		{
			name:  "algorithm that is not allowed",
			rules: bySubject,
			token: oidctest.Sign(t, jwt.SigningMethodRS512, otherKey, keyID, issuer.Claims(nil)),
			want:  "malformed jwt",
		},
		{
			name:  "another key",
			rules: bySubject,
			token: oidctest.Sign(t, jwt.SigningMethodRS256, otherKey, "", issuer.Claims(nil)),
			want:  "no key of the issuer",
		},
		{
			name:  "another key under the right id",
			rules: bySubject,
			token: oidctest.Sign(t, jwt.SigningMethodRS256, otherKey, keyID, issuer.Claims(nil)),
			want:  "no key of the issuer",
		},
		{
			name:  "unknown key id",
			rules: bySubject,
			token: oidctest.Sign(t, jwt.SigningMethodRS256, otherKey, "unknown", issuer.Claims(nil)),
			want:  "no key of the issuer",
		},
		{name: "truncated signature", rules: bySubject, token: validToken[:len(validToken)-10], want: "no key of the issuer"},
		{name: "unsigned", rules: bySubject, token: unsigned, want: "no key of the issuer"},
		{name: "no header", rules: bySubject, token: "." + payload + ".x", want: "malformed jwt"},
		{name: "two parts", rules: bySubject, token: "a." + payload, want: ""},
		{name: "four parts", rules: bySubject, token: validToken + ".x", want: ""},
		{name: "not base64", rules: bySubject, token: "a.!.c", want: ""},
		{
			name:  "valid base64 with an invalid suffix",
			rules: bySubject,
			token: "a." + base64.RawURLEncoding.EncodeToString([]byte(complete)) + "!.c",
			want:  "",
		},
		{name: "not JSON", rules: bySubject, token: "a." + base64.RawURLEncoding.EncodeToString([]byte("{")) + ".c", want: ""},
		{name: "opaque", rules: bySubject, token: "abcdef.0123456789abcdef", want: ""},
		{name: "empty", rules: bySubject, token: "", want: ""},
		{name: "oversized", rules: bySubject, token: strings.Repeat("a", authenticator.MaxTokenBytes+1), want: "too long"},
		{
			name:  "no username",
			rules: bySubject,
			token: tokenWith(map[string]any{"sub": nil}),
			want:  `username: claim "sub" is not present`,
		},
		{
			name:  "username is a number",
			rules: email,
			token: tokenWith(map[string]any{"email": 1}),
			want:  `claim "email" is not a string`,
		},
		{
			name:  "groups are a number",
			rules: bySubject,
			token: tokenWith(map[string]any{"groups": 1}),
			want:  `claim "groups" is neither`,
		},
		{
			name:  "groups have a number",
			rules: bySubject,
			token: tokenWith(map[string]any{"groups": []any{"a", 1}}),
			want:  `claim "groups" has an element`,
		},
		{
			name:  "email not verified",
			rules: email,
			token: tokenWith(map[string]any{"email": "a@b.c", "email_verified": false}),
			want:  "email is not verified",
		},
		{
			name:  "email_verified is a string",
			rules: email,
			token: tokenWith(map[string]any{"email": "a@b.c", "email_verified": "true"}),
			want:  "is not a boolean",
		},
		{name: "required claim is absent", rules: required, token: validToken, want: `required claim "hd" is not present`},
		{
			name:  "required claim differs",
			rules: required,
			token: tokenWith(map[string]any{"hd": "example.com"}),
			want:  `required claim "hd" has another value`,
		},
		{
			name:  "required claim is a list",
			rules: required,
			token: tokenWith(map[string]any{"hd": []string{"example.org"}}),
			want:  `required claim "hd" is not a string`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tokens := initializedAuthenticator(t, issuer, tt.rules)
			response, ok, err := tokens.AuthenticateToken(t.Context(), tt.token, nil)
			if response != nil || ok {
				t.Fatalf("got %+v, want no user", response)
			}
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want no opinion", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q", err, tt.want)
			case err != nil && tt.token != "" && strings.Contains(err.Error(), tt.token):
				t.Errorf("got error %q that contains the token, want none of it", err)
			}
		})
	}
}

// TestSupportedAlgorithmsAreAccepted checks that tokens of each supported algorithm are accepted.
func TestSupportedAlgorithmsAreAccepted(t *testing.T) {
	issuer := oidctest.New(t)
	for _, algorithm := range oidctoken.SigningAlgorithms() {
		t.Run(algorithm, func(t *testing.T) {
			issuer.Rotate(algorithm)
			tokens := initializedAuthenticator(t, issuer, bySubject, algorithm)
			if _, ok, err := tokens.AuthenticateToken(t.Context(), issuer.Token(nil), nil); !ok || err != nil {
				t.Errorf("got %v, %v, want true, no error", ok, err)
			}
		})
	}
}

// TestRotatedKeysAreAcceptedAtOnce accepts new keys of the issuer at once, and keeps known keys
// during an outage.
func TestRotatedKeysAreAcceptedAtOnce(t *testing.T) {
	issuer := oidctest.New(t)
	tokens := initializedAuthenticator(t, issuer, bySubject)
	firstKeyToken := issuer.Token(nil)
	accepted := func(token string) bool {
		_, ok, _ := tokens.AuthenticateToken(t.Context(), token, nil)
		return ok
	}
	if !accepted(firstKeyToken) {
		t.Fatal("token of the first key: got rejected, want accepted")
	}
	keyRequests := issuer.KeyRequests()
	for range 10 {
		if !accepted(firstKeyToken) {
			t.Fatal("token of a known key during an outage: got rejected, want accepted")
		}
	}
	if requests := issuer.KeyRequests(); requests != keyRequests {
		t.Errorf("known keys caused %d requests, want none", requests-keyRequests)
	}
	issuer.Rotate("RS256")
	if !accepted(issuer.Token(nil)) {
		t.Error("token of the new key: got rejected, want accepted")
	}
	if accepted(firstKeyToken) {
		t.Error("token of the withdrawn key: got accepted, want rejected")
	}
	publish := issuer.RotateSecretly("RS256")
	if accepted(issuer.Token(nil)) {
		t.Error("token of an unpublished key: got accepted, want rejected")
	}
	publish()
	if !accepted(issuer.Token(nil)) {
		t.Error("token of a published key: got rejected, want accepted")
	}
	// During an outage the known keys stay in use.
	issuer.SetStatus(http.StatusServiceUnavailable)
	knownKeyToken := issuer.Token(nil)
	issuer.RotateSecretly("RS256")
	if accepted(issuer.Token(nil)) {
		t.Error("token of a new key during an outage: got accepted, want rejected")
	}
	if !accepted(knownKeyToken) {
		t.Error("token of a known key during an outage: got rejected, want accepted")
	}
}

// TestUnknownKeysAreRateLimited sends forged tokens with unknown keys.
func TestUnknownKeysAreRateLimited(t *testing.T) {
	issuer := oidctest.New(t)
	tokens := initializedAuthenticator(t, issuer, bySubject)
	otherIssuer := oidctest.New(t)
	forged := otherIssuer.Token(map[string]any{"iss": issuer.URL()})
	before := issuer.KeyRequests()
	var clients sync.WaitGroup
	for range 200 {
		clients.Go(func() {
			if _, ok, err := tokens.AuthenticateToken(t.Context(), forged, nil); ok || err == nil {
				t.Errorf("token of another issuer: got accepted: %t, error %v; want false and an error", ok, err)
			}
		})
	}
	clients.Wait()
	for range 200 { // sequentially
		if _, ok, err := tokens.AuthenticateToken(t.Context(), forged, nil); ok || err == nil {
			t.Errorf("token of another issuer: got accepted: %t, error %v; want false and an error", ok, err)
		}
	}
	if requests := issuer.KeyRequests() - before; requests > 40 {
		t.Errorf("400 forged tokens caused %d requests, want at most 40", requests)
	}
}

// TestUnknownKeyWaitsNoLongerThanItsRequest checks that a token with an unknown key fails when its
// request is canceled, even if the provider does not respond.
func TestUnknownKeyWaitsNoLongerThanItsRequest(t *testing.T) {
	issuer := oidctest.New(t)
	tokens := initializedAuthenticator(t, issuer, bySubject)
	release := issuer.Hold()
	defer release()
	issuer.RotateSecretly("RS256")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok, err := tokens.AuthenticateToken(ctx, issuer.Token(nil), nil); ok || !errors.Is(err, authenticator.ErrUnavailable) {
		t.Errorf("got %v, %v, want false, error %v", ok, err, authenticator.ErrUnavailable)
	}
}

// TestKeysAreReadWithFirstToken uses an issuer that publishes its keys after the metadata.
func TestKeysAreReadWithFirstToken(t *testing.T) {
	issuer := oidctest.New(t)
	a := initializedAuthenticator(t, issuer, bySubject)
	if n := issuer.KeyRequests(); n != 0 {
		t.Errorf("keys were read %d times before the first token, want 0", n)
	}
	issuer.Rotate("RS256")
	for range 2 {
		if _, ok, err := a.AuthenticateToken(t.Context(), issuer.Token(nil), nil); !ok || err != nil {
			t.Errorf("got %v, %v, want true, no error", ok, err)
		}
	}
	if n := issuer.KeyRequests(); n != 1 {
		t.Errorf("keys were read %d times, want once", n)
	}
}

// FuzzToken checks that no modified token is accepted with a user outside the prefix.
func FuzzToken(f *testing.F) {
	issuer := oidctest.New(f)
	a := initializedAuthenticator(f, issuer, bySubject)
	good := issuer.Token(nil)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add("a.b.c")
	claims := maps.Clone(issuer.Claims(nil))
	claims["aud"] = map[string]any{}
	f.Add(oidctest.Sign(f, jwt.SigningMethodHS256, []byte("x"), "", claims))
	f.Fuzz(func(t *testing.T, token string) {
		r, ok, err := a.AuthenticateToken(t.Context(), token, nil)
		if ok && (err != nil || r == nil || !strings.HasPrefix(r.User.Name, "oidc:")) {
			t.Errorf("got %+v, %v, want a user with the prefix oidc: and no error", r, err)
		}
	})
}

// BenchmarkAuthenticate measures the authentication of a token with a known key.
func BenchmarkAuthenticate(b *testing.B) {
	issuer := oidctest.New(b)
	a := initializedAuthenticator(b, issuer, bySubject)
	token := issuer.Token(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := a.AuthenticateToken(b.Context(), token, nil); !ok {
			b.Fatal(err)
		}
	}
}
