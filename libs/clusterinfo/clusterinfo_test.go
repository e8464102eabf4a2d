package clusterinfo_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"binnacle/libs/clusterinfo"
)

const (
	id         = "abcdef"
	secret     = "0123456789abcdef"
	kubeconfig = "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n"
)

func encode(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// signed creates a signature with another implementation of the algorithm.
func signed(t *testing.T, method jwt.SigningMethod, key any, header, content string) string {
	t.Helper()
	sig, err := method.Sign(encode(header)+"."+encode(content), key)
	if err != nil {
		t.Fatal(err)
	}
	return encode(header) + ".." + base64.RawURLEncoding.EncodeToString(sig)
}

func TestSignIsDetachedHS256(t *testing.T) {
	got := clusterinfo.Sign(kubeconfig, id, secret)
	if want := signed(t, jwt.SigningMethodHS256, []byte(secret), `{"alg":"HS256","kid":"abcdef"}`, kubeconfig); got != want {
		t.Errorf("Sign() = %q, want %q", got, want)
	}
	parts := strings.Split(got, ".")
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	if err := jwt.SigningMethodHS256.Verify(parts[0]+"."+encode(kubeconfig), sig, []byte(secret)); err != nil {
		t.Errorf("another implementation rejects the signature: %v", err)
	}
}

func TestVerify(t *testing.T) {
	good := clusterinfo.Sign(kubeconfig, id, secret)
	hs := func(header string) string {
		return signed(t, jwt.SigningMethodHS256, []byte(secret), header, kubeconfig)
	}
	dot := strings.LastIndexByte(good, '.')
	tests := []struct {
		name                              string
		signature, kubeconfig, id, secret string
		want                              string // "" for valid
	}{
		{"good", good, kubeconfig, id, secret, ""},
		{"good, of an empty kubeconfig", clusterinfo.Sign("", id, secret), "", id, secret, ""},
		{"good, header in other order", hs(`{"kid":"abcdef", "alg":"HS256"}`), kubeconfig, id, secret, ""},
		{"other kubeconfig", good, kubeconfig + " ", id, secret, "not made from"},
		{"other secret", good, kubeconfig, id, "0123456789abcdee", "not made from"},
		{"no secret", clusterinfo.Sign(kubeconfig, id, ""), kubeconfig, id, "", "no secret"},
		{"other id", good, kubeconfig, "abcdeg", secret, "not that of token abcdeg"},
		{"no key id", hs(`{"alg":"HS256"}`), kubeconfig, id, secret, "not that of token"},
		{"no algorithm", hs(`{"kid":"abcdef"}`), kubeconfig, id, secret, "not HS256"},
		{"none", encode(`{"alg":"none","kid":"abcdef"}`) + "..", kubeconfig, id, secret, "not HS256"},
		{"HS512", signed(t, jwt.SigningMethodHS512, []byte(secret), `{"alg":"HS512","kid":"abcdef"}`, kubeconfig), kubeconfig, id, secret, "not HS256"},
		{"HS512 that says HS256", signed(t, jwt.SigningMethodHS512, []byte(secret), `{"alg":"HS256","kid":"abcdef"}`, kubeconfig), kubeconfig, id, secret, "not made from"},
		{"critical extension", hs(`{"alg":"HS256","kid":"abcdef","crit":["b64"],"b64":false}`), kubeconfig, id, secret, "extension"},
		{"with its content", strings.Replace(good, "..", "."+encode(kubeconfig)+".", 1), kubeconfig, id, secret, "form"},
		{"no signature", good[:dot+1], kubeconfig, id, secret, "not made from"},
		{"cut short", good[:len(good)-4], kubeconfig, id, secret, "not made from"},
		{"broken into lines", good[:dot+5] + "\r\n" + good[dot+5:], kubeconfig, id, secret, "not made from"},
		{"padded", good + "=", kubeconfig, id, secret, "not made from"},
		{"header is not JSON", encode("{") + good[strings.Index(good, ".."):], kubeconfig, id, secret, "JSON"},
		{"header is not base64url", "!" + good, kubeconfig, id, secret, "base64url"},
		{"empty", "", kubeconfig, id, secret, "form"},
		{"too long", good + strings.Repeat("A", 2000), kubeconfig, id, secret, "too long"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := clusterinfo.Verify(tt.signature, tt.kubeconfig, tt.id, tt.secret)
			switch {
			case tt.want == "":
				if err != nil {
					t.Errorf("Verify() = %v", err)
				}
			case !errors.Is(err, clusterinfo.ErrSignature) || !strings.Contains(err.Error(), tt.want):
				t.Errorf("Verify() = %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzVerify(f *testing.F) {
	good := clusterinfo.Sign(kubeconfig, id, secret)
	for _, s := range []string{good, "", "..", "a.b.c", encode("null") + "..", encode(`{"alg":1,"kid":[]}`) + ".."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, signature string) {
		// Another accepted text could differ only in the unsigned form of the header, which HMAC
		// excludes.
		if err := clusterinfo.Verify(signature, kubeconfig, id, secret); (err == nil) != (signature == good) {
			t.Errorf("Verify(%q) = %v", signature, err)
		}
	})
}
