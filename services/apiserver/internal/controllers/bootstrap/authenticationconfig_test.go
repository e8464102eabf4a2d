package bootstrap

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"binnacle/libs/serving/tlsfiles"
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
	bundleA := newBundle(2, now.Add(time.Hour))
	bundleB := newBundle(3, now.Add(time.Hour))
	for _, test := range []struct{ what, have, mine, want string }{
		{what: "nothing yet", have: "", mine: bundleA, want: bundleA},
		{what: "the same", have: bundleA, mine: bundleA, want: bundleA},
		{what: "another", have: bundleA, mine: bundleB, want: bundleA + bundleB},
		{what: "more than mine", have: bundleA + bundleB, mine: bundleB, want: bundleA + bundleB},
		{what: "more, with a comment", have: "# mine\n" + bundleA + bundleB, mine: bundleB, want: "# mine\n" + bundleA + bundleB},
		{what: "expired", have: old + bundleA, mine: bundleB, want: bundleA + bundleB},
		{what: "expired, mine is there", have: old + bundleA, mine: bundleA, want: bundleA},
		{what: "nonsense", have: "x", mine: bundleA, want: bundleA},
		{what: "a key", have: "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", mine: bundleA, want: bundleA},
	} {
		if got := mergeBundles(test.have, test.mine, now); got != test.want {
			t.Errorf("%s: got %q, want %q", test.what, got, test.want)
		}
	}
}

func TestUIDHeadersArePublishedOnlyIfConfigured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	if err := os.WriteFile(file, tlsfiles.EncodeCertificate(server.Certificate().Raw), 0o600); err != nil {
		t.Fatal(err)
	}
	cas, err := tlsfiles.LoadBundle(file)
	if err != nil {
		t.Fatal(err)
	}
	info := &ExtensionInfo{ProxyCAs: cas}
	data := info.Data()
	if _, ok := data["requestheader-uid-headers"]; ok || data["requestheader-username-headers"] != "[]" {
		t.Errorf("without headers: got %v", data)
	}
	info.ProxyHeaders.UID = []string{"X-Remote-Uid"}
	if got := info.Data()["requestheader-uid-headers"]; got != `["X-Remote-Uid"]` {
		t.Errorf("with a UID header: got %q", got)
	}
}
