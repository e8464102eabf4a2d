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

// TestSignIsDetachedHS256 checks that another implementation of JSON Web Signature creates and
// accepts the same signature.
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

// TestVerify accepts only the signature of the kubeconfig by the token.
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
		{name: "good", signature: good, kubeconfig: kubeconfig, id: id, secret: secret, want: ""},
		{
			name:       "good, of an empty kubeconfig",
			signature:  clusterinfo.Sign("", id, secret),
			kubeconfig: "",
			id:         id,
			secret:     secret,
			want:       "",
		},
		{
			name:       "good, header in other order",
			signature:  hs(`{"kid":"abcdef", "alg":"HS256"}`),
			kubeconfig: kubeconfig,
			id:         id,
			secret:     secret,
			want:       "",
		},
		{name: "other kubeconfig", signature: good, kubeconfig: kubeconfig + " ", id: id, secret: secret, want: "not made from"},
		{
			name:       "other secret",
			signature:  good,
			kubeconfig: kubeconfig,
			id:         id,
			secret:     "0123456789abcdee",
			want:       "not made from",
		},
		{
			name:       "no secret",
			signature:  clusterinfo.Sign(kubeconfig, id, ""),
			kubeconfig: kubeconfig,
			id:         id,
			secret:     "",
			want:       "no secret",
		},
		{
			name:       "other id",
			signature:  good,
			kubeconfig: kubeconfig,
			id:         "abcdeg",
			secret:     secret,
			want:       "not that of token abcdeg",
		},
		{
			name:       "no key id",
			signature:  hs(`{"alg":"HS256"}`),
			kubeconfig: kubeconfig,
			id:         id,
			secret:     secret,
			want:       "not that of token",
		},
		{
			name:       "no algorithm",
			signature:  hs(`{"kid":"abcdef"}`),
			kubeconfig: kubeconfig,
			id:         id,
			secret:     secret,
			want:       "not HS256",
		},
		{
			name:       "none",
			signature:  encode(`{"alg":"none","kid":"abcdef"}`) + "..",
			kubeconfig: kubeconfig,
			id:         id,
			secret:     secret,
			want:       "not HS256",
		},
		{
			name:       "HS512",
			signature:  signed(t, jwt.SigningMethodHS512, []byte(secret), `{"alg":"HS512","kid":"abcdef"}`, kubeconfig),
			kubeconfig: kubeconfig,
			id:         id,
			secret:     secret,
			want:       "not HS256",
		},
		{
			name:       "HS512 that says HS256",
			signature:  signed(t, jwt.SigningMethodHS512, []byte(secret), `{"alg":"HS256","kid":"abcdef"}`, kubeconfig),
			kubeconfig: kubeconfig,
			id:         id,
			secret:     secret,
			want:       "not made from",
		},
		{
			name:       "critical extension",
			signature:  hs(`{"alg":"HS256","kid":"abcdef","crit":["b64"],"b64":false}`),
			kubeconfig: kubeconfig,
			id:         id,
			secret:     secret,
			want:       "extension",
		},
		{
			name:       "with its content",
			signature:  strings.Replace(good, "..", "."+encode(kubeconfig)+".", 1),
			kubeconfig: kubeconfig,
			id:         id,
			secret:     secret,
			want:       "form",
		},
		{name: "no signature", signature: good[:dot+1], kubeconfig: kubeconfig, id: id, secret: secret, want: "not made from"},
		{name: "cut short", signature: good[:len(good)-4], kubeconfig: kubeconfig, id: id, secret: secret, want: "not made from"},
		{
			name:       "broken into lines",
			signature:  good[:dot+5] + "\r\n" + good[dot+5:],
			kubeconfig: kubeconfig,
			id:         id,
			secret:     secret,
			want:       "not made from",
		},
		{name: "padded", signature: good + "=", kubeconfig: kubeconfig, id: id, secret: secret, want: "not made from"},
		{
			name:       "header is not JSON",
			signature:  encode("{") + good[strings.Index(good, ".."):],
			kubeconfig: kubeconfig,
			id:         id,
			secret:     secret,
			want:       "JSON",
		},
		{
			name:       "header is not base64url",
			signature:  "!" + good,
			kubeconfig: kubeconfig,
			id:         id,
			secret:     secret,
			want:       "base64url",
		},
		{name: "empty", signature: "", kubeconfig: kubeconfig, id: id, secret: secret, want: "form"},
		{
			name:       "too long",
			signature:  good + strings.Repeat("A", 2000),
			kubeconfig: kubeconfig,
			id:         id,
			secret:     secret,
			want:       "too long",
		},
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

// FuzzVerify checks that Verify accepts only the signature that Sign returns.
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
