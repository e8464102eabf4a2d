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
	newBundle := func(serial int64, until time.Time) string {
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
	old := newBundle(1, now.Add(-time.Minute))
	a := newBundle(2, now.Add(time.Hour))
	b := newBundle(3, now.Add(time.Hour))
	for _, c := range []struct{ what, have, mine, want string }{
		{what: "nothing yet", have: "", mine: a, want: a},
		{what: "the same", have: a, mine: a, want: a},
		{what: "another", have: a, mine: b, want: a + b},
		{what: "more than mine", have: a + b, mine: b, want: a + b},
		{what: "more, with a comment", have: "# mine\n" + a + b, mine: b, want: "# mine\n" + a + b},
		{what: "expired", have: old + a, mine: b, want: a + b},
		{what: "expired, mine is there", have: old + a, mine: a, want: a},
		{what: "nonsense", have: "x", mine: a, want: a},
		{what: "a key", have: "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", mine: a, want: a},
	} {
		if got := mergeBundles(c.have, c.mine, now); got != c.want {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
}
