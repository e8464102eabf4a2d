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

// TestBundlesAreJoined checks that the published bundle keeps the certificates of other replicas, except
// expired ones, and gets the own ones.
func TestBundlesAreJoined(t *testing.T) {
	now := time.Now()
	newBundle := func(serial int64, until time.Time) string {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: until}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	old := newBundle(1, now.Add(-time.Minute))
	bundleA := newBundle(2, now.Add(time.Hour))
	bundleB := newBundle(3, now.Add(time.Hour))
	for _, test := range []struct{ name, published, own, want string }{
		{name: "nothing published", published: "", own: bundleA, want: bundleA},
		{name: "own bundle is published", published: bundleA, own: bundleA, want: bundleA},
		{name: "another bundle is published", published: bundleA, own: bundleB, want: bundleA + bundleB},
		{name: "both bundles are published", published: bundleA + bundleB, own: bundleB, want: bundleA + bundleB},
		{name: "both bundles and a comment are published", published: "# mine\n" + bundleA + bundleB, own: bundleB, want: "# mine\n" + bundleA + bundleB},
		{name: "expired bundle is dropped", published: old + bundleA, own: bundleB, want: bundleA + bundleB},
		{name: "expired bundle is dropped, own one is kept", published: old + bundleA, own: bundleA, want: bundleA},
		{name: "published text is no bundle", published: "x", own: bundleA, want: bundleA},
		{name: "published text is a key", published: "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", own: bundleA, want: bundleA},
	} {
		if got := mergeBundles(test.published, test.own, now); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// TestUIDHeadersArePublishedOnlyIfConfigured checks that the data lacks the key of UID headers if there
// are none, as in Kubernetes.
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
		t.Errorf("without headers: got %v, want no UID headers and an empty list of username headers", data)
	}
	info.ProxyHeaders.UID = []string{"X-Remote-Uid"}
	if got := info.Data()["requestheader-uid-headers"]; got != `["X-Remote-Uid"]` {
		t.Errorf("with a UID header: got %q, want a list of X-Remote-Uid", got)
	}
}
