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
	c := claims()
	if change != nil {
		change(&c)
	}
	token := jwt.NewWithClaims(method, c)
	for k, v := range header {
		token.Header[k] = v
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func publicKeyPEM(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// TestBrokenTokens rejects damaged tokens of this issuer, and ignores those of others.
func TestBrokenTokens(t *testing.T) {
	key, other := rsaKey(), ecKey(t, elliptic.P256())
	good := signToken(t, jwt.SigningMethodRS256, key, nil, nil)
	parts := strings.Split(good, ".")
	kid := public(t, key)[0].ID
	swap := func(i int, s string) string {
		p := append([]string(nil), parts...)
		p[i] = s
		return strings.Join(p, ".")
	}
	b64 := base64.RawURLEncoding.EncodeToString
	const mine, foreign = true, false // own tokens are rejected, other tokens are ignored
	for name, c := range map[string]struct {
		token string
		mine  bool
	}{
		"none":                    {token: signToken(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil), mine: mine},
		"None in capitals":        {token: b64([]byte(`{"alg":"NONE"}`)) + "." + parts[1] + ".", mine: mine},
		"no algorithm":            {token: swap(0, b64([]byte(`{}`))), mine: mine},
		"HS256 by the public key": {token: signToken(t, jwt.SigningMethodHS256, publicKeyPEM(t, key.Public()), map[string]any{"kid": kid}, nil), mine: mine},
		"RS512":                   {token: signToken(t, jwt.SigningMethodRS512, key, nil, nil), mine: mine},
		"PS256":                   {token: signToken(t, jwt.SigningMethodPS256, key, nil, nil), mine: mine},
		"another key":             {token: signToken(t, jwt.SigningMethodES256, other, nil, nil), mine: mine},
		"another key by the id":   {token: signToken(t, jwt.SigningMethodES256, other, map[string]any{"kid": kid}, nil), mine: mine},
		"critical header": {token: signToken(t, jwt.SigningMethodRS256, key, map[string]any{"crit": []string{"b64"}, "b64": false}, nil),
			mine: mine},
		"another issuer": {token: signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) { c.Issuer = "https://other" }),
			mine: foreign},
		"no issuer": {token: signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) { c.Issuer = "" }), mine: foreign},
		"no expiry": {token: signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) { c.ExpiresAt = nil }), mine: mine},
		"another subject": {token: signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) { c.Subject = "system:serviceaccount:ns:b" }),
			mine: mine},
		"no binding": {token: signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) { c.Binding = nil }), mine: mine},
		"from the future": {token: signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) { c.IssuedAt = jwt.NewNumericDate(start.Add(time.Hour)) }),
			mine: mine},
		"signature cut":     {token: good[:len(good)-4], mine: mine},
		"no signature":      {token: swap(2, ""), mine: mine},
		"a letter more":     {token: good + "A", mine: mine},
		"claims of another": {token: swap(1, b64([]byte(`{"iss":"`+issuer+`","sub":"system:serviceaccount:ns:b"}`))), mine: mine},
		"claims no JSON":    {token: swap(1, b64([]byte(`{`))), mine: foreign},
		"two parts":         {token: parts[0] + "." + parts[1], mine: foreign},
		"four parts":        {token: good + ".x", mine: foreign},
		"no base64":         {token: swap(1, "%"), mine: foreign},
		"opaque":            {token: "abc", mine: foreign},
		"empty":             {token: "", mine: foreign},
		"dots":              {token: strings.Repeat(".", 60000), mine: foreign},
	} {
		t.Run(name, func(t *testing.T) {
			_, ok, err := newAuthenticator(t, fullFixture(), start, key).AuthenticateToken(t.Context(), c.token, nil)
			if ok || (err != nil) != c.mine {
				t.Fatalf("authenticated %v, error %v, want an error: %v", ok, err, c.mine)
			}
			if err != nil && (strings.Contains(err.Error(), parts[1]) || strings.Contains(err.Error(), parts[2])) {
				t.Errorf("error %v contains the token", err)
			}
		})
	}
	if _, ok, err := newAuthenticator(t, fullFixture(), start, other, key).AuthenticateToken(t.Context(), good, nil); !ok {
		t.Errorf("valid token: got %v, want it accepted", err)
	}
	if _, ok, err := newAuthenticator(t, fullFixture(), start, key).AuthenticateToken(t.Context(), signToken(t, jwt.SigningMethodRS256, key, map[string]any{"kid": "unknown"}, nil), nil); !ok {
		t.Errorf("token with an unknown key ID: got %v, want it accepted", err)
	}
	if _, ok, err := newAuthenticator(t, fullFixture(), start, key).AuthenticateToken(t.Context(), strings.Repeat("x", authenticator.MaxTokenBytes+1), nil); ok || !errors.Is(err, authenticator.ErrTooLong) {
		t.Errorf("token longer than the limit: got %v, error %v, want false, error %v", ok, err, authenticator.ErrTooLong)
	}
}

// TestLegacyTokenRequiresItsSecret checks tokens in secrets: with the secret, without it, and
// without lookup.
func TestLegacyTokenRequiresItsSecret(t *testing.T) {
	key := rsaKey()
	token := func(change func(*satoken.Claims)) string {
		return signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) {
			*c = satoken.Claims{
				RegisteredClaims: jwt.RegisteredClaims{Issuer: satoken.LegacyIssuer, Subject: "system:serviceaccount:ns:a"},
				LegacyNamespace:  "ns", LegacySecretName: "s", LegacyName: "a", LegacyUID: "ua",
			}
			if change != nil {
				change(c)
			}
		})
	}
	for name, c := range map[string]struct {
		claims func(*satoken.Claims)
		world  func(*fixture)
		err    string
	}{
		"good":                  {},
		"no namespace":          {claims: func(c *satoken.Claims) { c.LegacyNamespace = "" }, err: "namespace claim"},
		"no secret name":        {claims: func(c *satoken.Claims) { c.LegacySecretName = "" }, err: "secretName claim"},
		"no name":               {claims: func(c *satoken.Claims) { c.LegacyName = "" }, err: "serviceAccountName claim"},
		"no uid":                {claims: func(c *satoken.Claims) { c.LegacyUID = "" }, err: "serviceAccountUID claim"},
		"another subject":       {claims: func(c *satoken.Claims) { c.Subject = "x" }, err: "sub claim"},
		"expired":               {claims: func(c *satoken.Claims) { c.ExpiresAt = jwt.NewNumericDate(start.Add(-time.Hour)) }, err: "expired"},
		"no secret":             {world: func(w *fixture) { w.secrets = nil }, err: "invalidated"},
		"secret being deleted":  {world: func(w *fixture) { w.secrets["ns/s"].DeletionTimestamp = &metav1.Time{Time: start} }, err: "invalidated"},
		"another token inside":  {world: func(w *fixture) { w.secrets["ns/s"].Data["token"] = []byte("x") }, err: "does not match"},
		"marked invalid":        {world: func(w *fixture) { w.secrets["ns/s"].Labels = map[string]string{satoken.InvalidSince: "2025-01-01"} }, err: "marked invalid"},
		"no account":            {world: func(w *fixture) { w.accounts = nil }, err: "has been deleted"},
		"account was recreated": {world: func(w *fixture) { w.accounts["ns/a"].UID = "other" }, err: "does not match claim"},
		"lookup fails":          {world: func(w *fixture) { w.down = errors.New("no connection") }, err: "no connection"},
	} {
		t.Run(name, func(t *testing.T) {
			w, tok := fullFixture(), token(c.claims)
			w.secrets["ns/s"] = &corev1.Secret{ObjectMeta: meta("ns", "s", "us"), Data: map[string][]byte{"token": []byte(tok)}}
			if c.world != nil {
				c.world(w)
			}
			r, ok, err := newAuthenticator(t, w, start, key).AuthenticateToken(t.Context(), tok, nil)
			if c.err == "" {
				if !ok || r.User.Name != "system:serviceaccount:ns:a" || r.User.UID != "ua" || len(r.Audiences) != 1 {
					t.Fatalf("got %+v, %v, want ServiceAccount ns/a with UID ua for one audience", r, err)
				}
				return
			}
			if ok || err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), tok) {
				t.Fatalf("got %v, %v, want %q", ok, err, c.err)
			}
		})
	}
	a, err := satoken.New(satoken.Config{Issuers: []string{issuer}, Keys: public(t, key), Objects: &fixture{}, Now: func() time.Time { return start }})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := a.AuthenticateToken(t.Context(), token(nil), nil); !ok {
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
	h := satoken.ParseUnverified(token)
	want := []satoken.Object{{satoken.KindServiceAccount, "ns", "a", "ua"}, {satoken.KindSecret, "ns", "s", "us"}, {satoken.KindPod, "ns", "p", "up"}}
	if len(h.Objects) != len(want) || !h.Expires.Equal(start.Add(time.Hour+satoken.Leeway)) {
		t.Fatalf("got hint %+v, want %d objects, and the expiry of the token with leeway", h, len(want))
	}
	for i := range want {
		if h.Objects[i] != want[i] {
			t.Errorf("%d: %+v, want %+v", i, h.Objects[i], want[i])
		}
	}
	if h := satoken.ParseUnverified("abcdef.0123456789abcdef"); len(h.Objects) != 0 || !h.Expires.IsZero() {
		t.Errorf("opaque token: got hint %+v, want an empty one", h)
	}
}

// FuzzAuthenticate checks that only the unmodified token is accepted.
func FuzzAuthenticate(f *testing.F) {
	key := ecKey(f, elliptic.P256())
	good := sign(f, key, nil)
	f.Add(good)
	f.Add(signToken(f, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil))
	f.Add(strings.Repeat(".", 10))
	f.Add("e30.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMiLCJleHAiOjFlNDB9.AA")
	a := newAuthenticator(f, fullFixture(), start, key)
	f.Fuzz(func(t *testing.T, token string) {
		satoken.ParseUnverified(token)
		if _, ok, _ := a.AuthenticateToken(t.Context(), token, nil); ok && token != good {
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
			t.Error("got no keys and no error, want an error")
		}
	})
}
