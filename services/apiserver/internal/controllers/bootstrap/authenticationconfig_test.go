package bootstrap

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

func TestBundlesAreJoined(t *testing.T) {
	now := time.Now()
	made := func(serial int64, until time.Time) string {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: until}
		der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	old := made(1, now.Add(-time.Minute))
	a := made(2, now.Add(time.Hour))
	b := made(3, now.Add(time.Hour))
	for _, c := range []struct{ what, have, mine, want string }{
		{"nothing yet", "", a, a},
		{"the same", a, a, a},
		{"another", a, b, a + b},
		{"more than mine", a + b, b, a + b},
		{"more, with a comment", "# mine\n" + a + b, b, "# mine\n" + a + b},
		{"expired", old + a, b, a + b},
		{"expired, mine is there", old + a, a, a},
		{"nonsense", "x", a, a},
		{"a key", "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", a, a},
	} {
		if got := mergeBundles(c.have, c.mine, now); got != c.want {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
}
