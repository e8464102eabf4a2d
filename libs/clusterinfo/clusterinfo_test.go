package clusterinfo_test

import (
	"encoding/base64"
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
