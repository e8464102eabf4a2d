package satoken_test

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authenticator"
	"binnacle/libs/satoken"
)

func claims() satoken.Claims {
	return satoken.Claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Subject: "system:serviceaccount:ns:a", Audience: []string{audience}, ID: "j",
			ExpiresAt: jwt.NewNumericDate(start.Add(time.Hour)),
		},
		Binding: &satoken.Binding{Namespace: "ns", ServiceAccount: satoken.Ref{Name: "a", UID: "ua"}},
	}
}

// signToken creates a token with arbitrary headers and claims.
func signToken(t testing.TB, method jwt.SigningMethod, key any, header map[string]any, change func(*satoken.Claims)) string {
	t.Helper()
	content := claims()
	if change != nil {
		change(&content)
	}
	token := jwt.NewWithClaims(method, content)
	for k, v := range header {
		token.Header[k] = v
	}
	signed, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func publicKeyPEM(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// TestInvalidTokensAreRejectedOrIgnored checks that damaged tokens of this issuer are rejected, and
// tokens of other issuers ignored.
func TestInvalidTokensAreRejectedOrIgnored(t *testing.T) {
	key, otherKey := rsaKey(), ecKey(t, elliptic.P256())
	validToken := signToken(t, jwt.SigningMethodRS256, key, nil, nil)
	parts := strings.Split(validToken, ".")
	keyID := publicKeys(t, key)[0].ID
	replacePart := func(i int, s string) string {
		p := append([]string(nil), parts...)
		p[i] = s
		return strings.Join(p, ".")
	}
	b64 := base64.RawURLEncoding.EncodeToString
	// Tokens of this issuer are rejected with an error. Other tokens are ignored.
	const rejected, ignored = true, false
	for name, test := range map[string]struct {
		token     string
		wantError bool
	}{
		"algorithm none": {
			token:     signToken(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil),
			wantError: rejected,
		},
		"algorithm NONE": {token: b64([]byte(`{"alg":"NONE"}`)) + "." + parts[1] + ".", wantError: rejected},
		"no algorithm":   {token: replacePart(0, b64([]byte(`{}`))), wantError: rejected},
		"HS256 with the public key": {
			token:     signToken(t, jwt.SigningMethodHS256, publicKeyPEM(t, key.Public()), map[string]any{"kid": keyID}, nil),
			wantError: rejected,
		},
		"RS512":       {token: signToken(t, jwt.SigningMethodRS512, key, nil, nil), wantError: rejected},
		"PS256":       {token: signToken(t, jwt.SigningMethodPS256, key, nil, nil), wantError: rejected},
		"another key": {token: signToken(t, jwt.SigningMethodES256, otherKey, nil, nil), wantError: rejected},
		"another key with the key ID": {
			token:     signToken(t, jwt.SigningMethodES256, otherKey, map[string]any{"kid": keyID}, nil),
			wantError: rejected,
		},
		"critical header": {
			token:     signToken(t, jwt.SigningMethodRS256, key, map[string]any{"crit": []string{"b64"}, "b64": false}, nil),
			wantError: rejected,
		},
		"another issuer": {
			token:     signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) { c.Issuer = "https://other" }),
			wantError: ignored,
		},
		"no issuer": {
			token:     signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) { c.Issuer = "" }),
			wantError: ignored,
		},
		"no expiry": {
			token:     signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) { c.ExpiresAt = nil }),
			wantError: rejected,
		},
		"another subject": {
			token: signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) {
				c.Subject = "system:serviceaccount:ns:b"
			}),
			wantError: rejected,
		},
		"no binding": {
			token:     signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) { c.Binding = nil }),
			wantError: rejected,
		},
		"issued in the future": {
			token: signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) {
				c.IssuedAt = jwt.NewNumericDate(start.Add(time.Hour))
			}),
			wantError: rejected,
		},
		"truncated signature":            {token: validToken[:len(validToken)-4], wantError: rejected},
		"no signature":                   {token: replacePart(2, ""), wantError: rejected},
		"signature with an extra letter": {token: validToken + "A", wantError: rejected},
		"claims of another account": {
			token:     replacePart(1, b64([]byte(`{"iss":"`+issuer+`","sub":"system:serviceaccount:ns:b"}`))),
			wantError: rejected,
		},
		"claims are not JSON":   {token: replacePart(1, b64([]byte(`{`))), wantError: ignored},
		"two parts":             {token: parts[0] + "." + parts[1], wantError: ignored},
		"four parts":            {token: validToken + ".x", wantError: ignored},
		"claims are not base64": {token: replacePart(1, "%"), wantError: ignored},
		"opaque":                {token: "abc", wantError: ignored},
		"empty":                 {token: "", wantError: ignored},
		"only dots":             {token: strings.Repeat(".", 60000), wantError: ignored},
	} {
		t.Run(name, func(t *testing.T) {
			_, ok, err := newAuthenticator(t, fullFixture(), start, key).AuthenticateToken(t.Context(), test.token, nil)
			if ok || (err != nil) != test.wantError {
				t.Fatalf("authenticated %v, error %v, want not authenticated, an error: %v", ok, err, test.wantError)
			}
			if err != nil && (strings.Contains(err.Error(), parts[1]) || strings.Contains(err.Error(), parts[2])) {
				t.Errorf("error %v contains the token", err)
			}
		})
	}
}

// TestAnyConfiguredKeyVerifiesToken checks that a token is accepted with one of several keys, also
// if its key ID is unknown.
func TestAnyConfiguredKeyVerifiesToken(t *testing.T) {
	key := rsaKey()
	validToken := signToken(t, jwt.SigningMethodRS256, key, nil, nil)
	if _, ok, err := newAuthenticator(t, fullFixture(), start, ecKey(t, elliptic.P256()), key).AuthenticateToken(t.Context(),
		validToken, nil); !ok {
		t.Errorf("valid token: got %v, want it accepted", err)
	}
	if _, ok, err := newAuthenticator(t, fullFixture(), start, key).AuthenticateToken(t.Context(),
		signToken(t, jwt.SigningMethodRS256, key, map[string]any{"kid": "unknown"}, nil), nil); !ok {
		t.Errorf("token with an unknown key ID: got %v, want it accepted", err)
	}
}

// TestTokenOverTheLimitIsRejected checks that a token over MaxTokenBytes fails with ErrTooLong.
func TestTokenOverTheLimitIsRejected(t *testing.T) {
	if _, ok, err := newAuthenticator(t, fullFixture(), start, rsaKey()).AuthenticateToken(t.Context(),
		strings.Repeat("x", authenticator.MaxTokenBytes+1), nil); ok || !errors.Is(err, authenticator.ErrTooLong) {
		t.Errorf("token longer than the limit: got %v, error %v, want false, error %v", ok, err, authenticator.ErrTooLong)
	}
}

// TestLegacyTokenRequiresItsSecret checks tokens in secrets: with the secret, without it, and
// without lookup.
func TestLegacyTokenRequiresItsSecret(t *testing.T) {
	key := rsaKey()
	token := func(change func(*satoken.Claims)) string {
		return signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) {
			legacyClaims(c)
			if change != nil {
				change(c)
			}
		})
	}
	for name, test := range map[string]struct {
		claims func(*satoken.Claims)
		change func(*fixture)
		err    string
	}{
		"valid":           {},
		"no namespace":    {claims: func(c *satoken.Claims) { c.LegacyNamespace = "" }, err: "namespace claim"},
		"no secret name":  {claims: func(c *satoken.Claims) { c.LegacySecretName = "" }, err: "secretName claim"},
		"no name":         {claims: func(c *satoken.Claims) { c.LegacyName = "" }, err: "serviceAccountName claim"},
		"no uid":          {claims: func(c *satoken.Claims) { c.LegacyUID = "" }, err: "serviceAccountUID claim"},
		"another subject": {claims: func(c *satoken.Claims) { c.Subject = "x" }, err: "sub claim"},
		"expired": {
			claims: func(c *satoken.Claims) { c.ExpiresAt = jwt.NewNumericDate(start.Add(-time.Hour)) },
			err:    "expired",
		},
		"no secret": {change: func(w *fixture) { w.secrets = nil }, err: "invalidated"},
		"secret being deleted": {
			change: func(w *fixture) { w.secrets["ns/s"].DeletionTimestamp = &metav1.Time{Time: start} },
			err:    "invalidated",
		},
		"secret with another token": {
			change: func(w *fixture) { w.secrets["ns/s"].Data["token"] = []byte("x") },
			err:    "does not match",
		},
		"secret marked invalid": {
			change: func(w *fixture) { w.secrets["ns/s"].Labels = map[string]string{satoken.InvalidSince: "2025-01-01"} },
			err:    "marked invalid",
		},
		"no account":            {change: func(w *fixture) { w.accounts = nil }, err: "has been deleted"},
		"account was recreated": {change: func(w *fixture) { w.accounts["ns/a"].UID = "other" }, err: "does not match claim"},
		"lookup fails":          {change: func(w *fixture) { w.down = errors.New("no connection") }, err: "no connection"},
	} {
		t.Run(name, func(t *testing.T) {
			w, signed := fullFixture(), token(test.claims)
			w.secrets["ns/s"] = &corev1.Secret{ObjectMeta: meta("ns", "s", "us"), Data: map[string][]byte{"token": []byte(signed)}}
			if test.change != nil {
				test.change(w)
			}
			response, ok, err := newAuthenticator(t, w, start, key).AuthenticateToken(t.Context(), signed, nil)
			if test.err == "" {
				if !ok || response.User.Name != "system:serviceaccount:ns:a" || response.User.UID != "ua" || len(response.Audiences) != 1 {
					t.Fatalf("got %+v, %v, want ServiceAccount ns/a with UID ua for one audience", response, err)
				}
				return
			}
			if ok || err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), signed) {
				t.Fatalf("got authenticated %v, error %v, want an error with %q and without the token", ok, err, test.err)
			}
		})
	}
}

// TestLegacyTokenIsAcceptedWithoutLookup checks that a server that does not look up objects accepts
// a legacy token without its Secret.
func TestLegacyTokenIsAcceptedWithoutLookup(t *testing.T) {
	key := rsaKey()
	withoutLookup, err := satoken.New(satoken.Config{
		Issuers: []string{issuer},
		Keys:    publicKeys(t, key),
		Objects: &fixture{},
		Now:     func() time.Time { return start },
	})
	if err != nil {
		t.Fatal(err)
	}
	token := signToken(t, jwt.SigningMethodRS256, key, nil, legacyClaims)
	if _, ok, err := withoutLookup.AuthenticateToken(t.Context(), token, nil); !ok {
		t.Errorf("without lookup: got %v, want the token accepted", err)
	}
}

// TestUnverifiedClaimsHaveObjectsAndExpiry checks that ParseUnverified returns the objects of a
// bound token and its expiry with leeway.
func TestUnverifiedClaimsHaveObjectsAndExpiry(t *testing.T) {
	token := sign(t, rsaKey(), func(r *satoken.Request) {
		r.Binding.Pod = &satoken.Ref{Name: "p", UID: "up"}
		r.Binding.Secret = &satoken.Ref{Name: "s", UID: "us"}
		r.Binding.Node = &satoken.Ref{Name: "n"}
	})
	unverifiedClaims := satoken.ParseUnverified(token)
	want := []satoken.Object{
		{satoken.KindServiceAccount, "ns", "a", "ua"},
		{satoken.KindSecret, "ns", "s", "us"},
		{satoken.KindPod, "ns", "p", "up"},
	}
	if len(unverifiedClaims.Objects) != len(want) || !unverifiedClaims.Expires.Equal(start.Add(time.Hour+satoken.Leeway)) {
		t.Fatalf("got hint %+v, want %d objects, and the expiry of the token with leeway", unverifiedClaims, len(want))
	}
	for i := range want {
		if unverifiedClaims.Objects[i] != want[i] {
			t.Errorf("%d: %+v, want %+v", i, unverifiedClaims.Objects[i], want[i])
		}
	}
	if unverifiedClaims := satoken.ParseUnverified("abcdef.0123456789abcdef"); len(unverifiedClaims.Objects) != 0 || !unverifiedClaims.Expires.IsZero() {
		t.Errorf("opaque token: got hint %+v, want an empty one", unverifiedClaims)
	}
}

// FuzzAuthenticate checks that only the unmodified token is accepted.
func FuzzAuthenticate(f *testing.F) {
	key := ecKey(f, elliptic.P256())
	validToken := sign(f, key, nil)
	f.Add(validToken)
	f.Add(signToken(f, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil))
	f.Add(strings.Repeat(".", 10))
	f.Add("e30.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMiLCJleHAiOjFlNDB9.AA")
	tokens := newAuthenticator(f, fullFixture(), start, key)
	f.Fuzz(func(t *testing.T, token string) {
		satoken.ParseUnverified(token)
		if _, ok, _ := tokens.AuthenticateToken(t.Context(), token, nil); ok && token != validToken {
			t.Errorf("%q: accepted, want rejected", token)
		}
	})
}

// FuzzParsePublicKeys checks that parsing returns at least one key or an error.
func FuzzParsePublicKeys(f *testing.F) {
	f.Add(publicKeyPEM(f, rsaKey().Public()))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := satoken.ParsePublicKeys(bytes.Clone(data))
		if err == nil && len(keys) == 0 {
			t.Errorf("ParsePublicKeys(%q) = no keys and nil, want an error", data)
		}
	})
}
