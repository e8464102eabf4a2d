package satoken_test

import (
	"context"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authenticator"
	"binnacle/libs/satoken"
)

// withoutAccounts is a fixture whose accounts cannot be looked up.
type withoutAccounts struct{ *fixture }

func (withoutAccounts) ServiceAccount(context.Context, string, string) (*corev1.ServiceAccount, error) {
	return nil, errors.New("no connection")
}

// legacyClaims replaces claims by those of a legacy token: of the account a in the namespace ns,
// stored in the Secret s.
func legacyClaims(c *satoken.Claims) {
	*c = satoken.Claims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: satoken.LegacyIssuer, Subject: "system:serviceaccount:ns:a"},
		LegacyNamespace:  "ns", LegacySecretName: "s", LegacyName: "a", LegacyUID: "ua",
	}
}

// TestLegacyTokenDependsOnAccountAndSecret checks whether a legacy token is accepted, depending on
// its account and its Secret, and which uses are counted. A Secret that the account lists was made
// with the account; any other one was created manually.
func TestLegacyTokenDependsOnAccountAndSecret(t *testing.T) {
	key := rsaKey()
	expiry := start.Add(time.Hour)
	for name, test := range map[string]struct {
		claims      func(*satoken.Claims)          // changes the claims of the token
		change      func(*fixture) satoken.Objects // changes the objects and returns them
		uses        []satoken.Use
		expires     time.Time
		err         string
		unavailable bool
	}{
		"manually created secret": {uses: []satoken.Use{satoken.UseLegacyManual, satoken.UseLegacy}},
		"secret created with its account": {change: func(w *fixture) satoken.Objects {
			w.accounts["ns/a"].Secrets = []corev1.ObjectReference{{Name: "other"}, {Name: "s"}}
			return w
		}, uses: []satoken.Use{satoken.UseLegacyAuto, satoken.UseLegacy}},
		// The account lists a Secret, but not the one of the token.
		"account lists another secret": {change: func(w *fixture) satoken.Objects {
			w.accounts["ns/a"].Secrets = []corev1.ObjectReference{{Name: "other"}}
			return w
		}, uses: []satoken.Use{satoken.UseLegacyManual, satoken.UseLegacy}},
		"secret with a token that expires": {claims: func(c *satoken.Claims) { c.ExpiresAt = jwt.NewNumericDate(expiry) },
			uses: []satoken.Use{satoken.UseLegacyManual, satoken.UseLegacy}, expires: expiry.Add(satoken.Leeway)},
		"account being deleted": {change: func(w *fixture) satoken.Objects {
			w.accounts["ns/a"].DeletionTimestamp = &metav1.Time{Time: start}
			return w
		}, err: "has been deleted"},
		"account cannot be looked up": {
			change:      func(w *fixture) satoken.Objects { return withoutAccounts{w} },
			err:         "look up the service account",
			unavailable: true,
		},
		"secret marked invalid": {change: func(w *fixture) satoken.Objects {
			w.secrets["ns/s"].Labels = map[string]string{satoken.InvalidSince: "2025-01-01"}
			return w
		}, uses: []satoken.Use{satoken.UseLegacyInvalid}, err: "marked invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fullFixture()
			token := signToken(t, jwt.SigningMethodRS256, key, nil, func(o *satoken.Claims) {
				legacyClaims(o)
				if test.claims != nil {
					test.claims(o)
				}
			})
			w.secrets["ns/s"].Data = map[string][]byte{"token": []byte(token)}
			objects := satoken.Objects(w)
			if test.change != nil {
				objects = test.change(w)
			}
			var seen []satoken.Use
			tokens, err := satoken.New(satoken.Config{
				Issuers: []string{issuer},
				Keys:    publicKeys(t, key),
				Lookup:  true,
				Objects: objects,
				Now:     func() time.Time { return start },
				Observe: func(u satoken.Use) { seen = append(seen, u) },
			})
			if err != nil {
				t.Fatal(err)
			}
			resp, ok, err := tokens.AuthenticateToken(t.Context(), token, nil)
			if ok != (test.err == "") || !reflect.DeepEqual(seen, test.uses) ||
				errors.Is(err, authenticator.ErrUnavailable) != test.unavailable {
				t.Errorf("authenticated = %v, error: %v, uses = %q, want %q", ok, err, seen, test.uses)
			}
			if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got %v, want %q", err, test.err)
			}
			if ok && !resp.Expires.Equal(test.expires) {
				t.Errorf("expires %v, want %v", resp.Expires, test.expires)
			}
		})
	}
}

// TestParseUnverifiedOfUnusualTokens checks what ParseUnverified returns for tokens with few or
// invalid claims.
func TestParseUnverifiedOfUnusualTokens(t *testing.T) {
	key := rsaKey()
	account := satoken.Object{Kind: satoken.KindServiceAccount, Namespace: "ns", Name: "a", UID: "ua"}
	secret := satoken.Object{Kind: satoken.KindSecret, Namespace: "ns", Name: "s"}
	payload := func(c any) string {
		raw, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	bound := payload(claims())
	for name, test := range map[string]struct {
		token   string
		objects []satoken.Object
		legacy  bool
	}{
		"bound to a node": {token: sign(t, key, func(r *satoken.Request) { r.Binding.Node = &satoken.Ref{Name: "n", UID: "un"} }),
			objects: []satoken.Object{account, {Kind: satoken.KindNode, Name: "n", UID: "un"}}},
		"bound to a secret without name": {
			token:   sign(t, key, func(r *satoken.Request) { r.Binding.Secret = &satoken.Ref{UID: "us"} }),
			objects: []satoken.Object{account},
		},
		"stored in a secret": {
			token:   signToken(t, jwt.SigningMethodRS256, key, nil, legacyClaims),
			objects: []satoken.Object{account, secret},
			legacy:  true,
		},
		"one part":    {token: bound},
		"two parts":   {token: "a." + bound},
		"three parts": {token: "a." + bound + ".c", objects: []satoken.Object{account}},
		"invalid base64 at the end": {token: "a." + payload(satoken.Claims{Binding: &satoken.Binding{
			ServiceAccount: satoken.Ref{Name: "a"},
			Namespace:      "nsxx",
		}}) + "%.c"},
		"claim of another type": {token: "a." + payload(map[string]any{
			"aud":           7,
			"kubernetes.io": map[string]any{"namespace": "ns", "serviceaccount": map[string]any{"name": "a"}},
		}) + ".c"},
		"too long": {token: "a." + bound + "." + strings.Repeat("c", authenticator.MaxTokenBytes)},
	} {
		unverifiedClaims := satoken.ParseUnverified(test.token)
		if !reflect.DeepEqual(unverifiedClaims.Objects, test.objects) {
			t.Errorf("%s: %+v, want %+v", name, unverifiedClaims.Objects, test.objects)
		}
		// Only a legacy token names a Secret and a user.
		if test.legacy && (unverifiedClaims.Legacy == nil || *unverifiedClaims.Legacy != secret || unverifiedClaims.User != "system:serviceaccount:ns:a") ||
			!test.legacy && (unverifiedClaims.Legacy != nil || unverifiedClaims.User != "") {
			t.Errorf("%s: got hint %+v, want the Secret and user of a legacy token only: %t", name, unverifiedClaims, test.legacy)
		}
	}
}

// TestSystemClockIsTheDefault checks that the system's clock is the default. It also checks that
// only a token with an id has extra values, and that a token without an account is rejected.
func TestSystemClockIsTheDefault(t *testing.T) {
	key := rsaKey()
	tokens, err := satoken.New(satoken.Config{Issuers: []string{issuer}, Keys: publicKeys(t, key), Objects: fullFixture()})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	token := sign(t, key, func(r *satoken.Request) { r.IssuedAt = now })
	resp, ok, err := tokens.AuthenticateToken(t.Context(), token, nil)
	if !ok {
		t.Fatal(err)
	}
	if len(resp.User.Extra) != 1 {
		t.Errorf("extra %v, want 1", resp.User.Extra)
	}
	nameless := signToken(t, jwt.SigningMethodRS256, key, nil, func(c *satoken.Claims) {
		c.ID, c.ExpiresAt = "", jwt.NewNumericDate(now.Add(time.Hour))
	})
	resp, ok, err = tokens.AuthenticateToken(t.Context(), nameless, nil)
	if !ok || resp.User.Extra != nil {
		t.Errorf("got %+v, %v, want a user without extra", resp, err)
	}
	noAccount := sign(t, key, func(r *satoken.Request) { r.IssuedAt, r.Binding.ServiceAccount.Name = now, "" })
	if _, ok, err := tokens.AuthenticateToken(t.Context(), noAccount, nil); ok || err == nil ||
		!strings.Contains(err.Error(), "names no service account") {
		t.Errorf("got %v, %v, want a rejection: it names no service account", ok, err)
	}
}

// TestInvalidKeyFilesAreRejected checks that a damaged key is an error, even if the file has a
// valid one, and that a missing file is an error.
func TestInvalidKeyFilesAreRejected(t *testing.T) {
	key := ecKey(t, elliptic.P256())
	validBlock := publicKeyPEM(t, key.Public())
	for _, kind := range []string{"PUBLIC KEY", "CERTIFICATE", "RSA PUBLIC KEY", "EC PRIVATE KEY"} {
		invalidBlock := pemBlock(kind, []byte("x"), nil)
		if keys, err := satoken.ParsePublicKeys(append(invalidBlock, validBlock...)); err == nil {
			t.Errorf("%s: %d keys, want an error", kind, len(keys))
		}
	}
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := satoken.LoadPublicKeys(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want error %v", err, fs.ErrNotExist)
	}
	if _, err := satoken.LoadPrivateKey(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want error %v", err, fs.ErrNotExist)
	}
	der, err := x509.MarshalECPrivateKey(key)
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path,
		append(pemBlock("PRIVATE KEY", []byte("x"), nil), pemBlock("EC PRIVATE KEY", der, err)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := satoken.LoadPrivateKey(path); err == nil {
		t.Error("LoadPrivateKey() of a damaged key before a good one = nil, want an error")
	}
}

// TestValidateRejectsInvalidAndRepeatedIssuers checks the errors for invalid and repeated issuers.
func TestValidateRejectsInvalidAndRepeatedIssuers(t *testing.T) {
	for issuers, want := range map[string]string{
		"https://a":           "",
		"a,https://b":         "",
		"":                    "must not be empty",
		"https://a,https://a": "given twice",
		"https://%zz":         "not a URL",
		"https://a b:%zz":     "not a URL",
	} {
		var texts []string
		for _, err := range satoken.ValidateIssuers(strings.Split(issuers, ",")) {
			texts = append(texts, err.Error())
		}
		if got := strings.Join(texts, "|"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", issuers, got, want)
		}
	}
}

// TestUsesAreCounted checks that only registered uses are counted.
func TestUsesAreCounted(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	count := satoken.CountUses(registry, satoken.UseStale)
	count(satoken.UseStale)
	count(satoken.UseValid) // not registered
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "serviceaccount_stale_tokens_total" ||
		families[0].GetMetric()[0].GetCounter().GetValue() != 1 {
		t.Errorf("got %v, %v, want only serviceaccount_stale_tokens_total, at 1", families, err)
	}
}
