package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/deploy/certs"
	"binnacle/libs/serving/tlsfiles"
)

// snapshot returns the content of every file below a folder.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEnsureDoesNotReplaceCA checks that Ensure returns a MissingCAError and writes nothing if a CA
// with certificates is missing.
func TestEnsureDoesNotReplaceCA(t *testing.T) {
	for name, test := range map[string]struct {
		remove []string
		renew  bool
		empty  bool
	}{
		"folder of CAs absent":        {remove: []string{"ca"}},
		"one key absent":              {remove: []string{"ca/nats-ca.key"}},
		"one certificate absent":      {remove: []string{"ca/serving-ca.crt"}},
		"folder of CAs absent, renew": {remove: []string{"ca"}, renew: true},
		"nothing to renew":            {renew: true, empty: true},
	} {
		t.Run(name, func(t *testing.T) {
			options := newFolder(t)
			if !test.empty {
				ensureFiles(t, options)
			}
			for _, path := range test.remove {
				if err := os.RemoveAll(filepath.Join(options.Dir, path)); err != nil {
					t.Fatal(err)
				}
			}
			before := snapshot(t, options.Dir)
			options.Renew = test.renew
			created, err := certs.Ensure(options)
			var missing *certs.MissingCAError
			if !errors.As(err, &missing) || len(created) > 0 || !strings.Contains(err.Error(), "--new-ca") ||
				!strings.Contains(err.Error(), missing.Key) {
				t.Fatalf("got files %v, error %v, want none and an error that names the key and --new-ca", created, err)
			}
			after := snapshot(t, options.Dir)
			if len(after) != len(before) {
				t.Errorf("got %d files, want %d as before", len(after), len(before))
			}
			for path, data := range before {
				if after[path] != data {
					t.Errorf("%s: got another content, want it unchanged", path)
				}
			}
		})
	}
}

// TestCertificatesHaveConfiguredLifetimes checks the expiry of certificates and CAs, and that
// short-lived certificates are not replaced at once.
func TestCertificatesHaveConfiguredLifetimes(t *testing.T) {
	options := newFolder(t)
	options.Lifetime, options.CALifetime = 48*time.Hour, 96*time.Hour
	ensureFiles(t, options)
	l := certs.Layout{Dir: options.Dir}
	for p, want := range map[certs.Pair]time.Duration{l.Admin(): options.Lifetime, l.CA(certs.ClientCA): options.CALifetime} {
		if remaining := time.Until(leafOf(t, p).NotAfter); remaining > want || remaining < want-time.Hour {
			t.Errorf("%s: got expiry in %s, want %s", p.Cert, remaining, want)
		}
	}
	if created := ensureFiles(t, options); len(created) > 0 {
		t.Errorf("short-lived certificates were replaced at once: %v, want none", created)
	}
}

// outsideCA signs requests like a CA that an operator runs.
type outsideCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newOutsideCA creates a CA.
func newOutsideCA(t *testing.T) *outsideCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "outside"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(certs.DefaultCALifetime),
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &outsideCA{cert, key}
}

// sign writes the certificate of a request beside it, with the requested extensions.
func (ca *outsideCA) sign(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:    big.NewInt(time.Now().UnixNano()),
		Subject:         request.Subject,
		ExtraExtensions: request.Extensions,
		NotBefore:       time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certs.DefaultLifetime),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, request.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, strings.TrimSuffix(path, ".csr")+".crt", tlsfiles.EncodeCertificate(der))
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestExternalCASignsRequests checks the requests for an external CA, and that its signed
// certificates are accepted.
func TestExternalCASignsRequests(t *testing.T) {
	options := newFolder(t)
	options.ExternalCAs = []certs.CA{certs.FrontProxyCA}
	layout, outsideCA := certs.Layout{Dir: options.Dir}, newOutsideCA(t)

	_, err := certs.Ensure(options)
	var unsigned *certs.UnsignedError
	if !errors.As(err, &unsigned) || len(unsigned.Requests) != 2 || len(unsigned.Missing) != 1 {
		t.Fatalf("got error %v, want one with 2 requests and 1 missing certificate", err)
	}
	write(t, layout.CA(certs.FrontProxyCA).Cert, tlsfiles.EncodeCertificate(outsideCA.cert.Raw))
	for _, path := range unsigned.Requests {
		outsideCA.sign(t, path)
	}
	if created := ensureFiles(t, options); len(created) > 0 {
		t.Errorf("got files %v, want none", created)
	}
	for _, path := range unsigned.Requests {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was not removed: %v, want error %v", path, err, fs.ErrNotExist)
		}
	}
	if _, err := os.Stat(layout.TrustBundle("apiserver", certs.FrontProxyCA)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(layout.CA(certs.FrontProxyCA).Key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got a key of the external CA: %v, want error %v", err, fs.ErrNotExist)
	}

	before := leafOf(t, layout.FrontProxy())
	options.Renew = true
	if _, err := certs.Ensure(options); !errors.As(err, &unsigned) {
		t.Fatalf("renewal: got error %v, want one about unsigned requests", err)
	}
	if !leafOf(t, layout.FrontProxy()).Equal(before) {
		t.Error("renewal: got another current certificate before the new one is signed, want it unchanged")
	}
	if _, err := certs.Rotate(options, certs.Prepare, certs.FrontProxyCA); err == nil {
		t.Error("Rotate(prepare) of an external CA = nil, want an error")
	}
}

// TestCheckReportsProblems checks the problem that Check reports for each kind of invalid
// certificate.
func TestCheckReportsProblems(t *testing.T) {
	options := newFolder(t)
	ensureFiles(t, options)
	now := time.Now()
	problems := func(at time.Time, within time.Duration) map[string]string {
		out := map[string]string{}
		for _, e := range certs.Check(options, at, within) {
			if e.Problem != "" {
				out[e.Path] = e.Problem
			}
		}
		return out
	}
	if found := problems(now, 30*24*time.Hour); len(found) > 0 {
		t.Errorf("new suite: got problems %v, want none", found)
	}
	if found := problems(now, 400*24*time.Hour); found["admin/admin.crt"] != "expires soon" || found["ca/client-ca.crt"] != "" {
		t.Errorf("within 400 days: got problems %v, want admin.crt to expire soon and none of client-ca.crt", found)
	}
	if found := problems(now.Add(366*24*time.Hour), 0); found["admin/admin.crt"] != "expired" || found["ca/client-ca.crt"] != "" {
		t.Errorf("after a year: got problems %v, want admin.crt expired and none of client-ca.crt", found)
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(options.Dir, "ca")),
		os.Remove(filepath.Join(options.Dir, "etcd/etcd.crt"))); err != nil {
		t.Fatal(err)
	}
	if found := problems(now, 0); len(found) != 1 || found["etcd/etcd.crt"] != "missing" {
		t.Errorf("without the folder of CAs: got problems %v, want only a missing etcd.crt", found)
	}
	options.Names = []string{"other.example.org"}
	if found := problems(now, 0); !strings.Contains(found["apiserver/apiserver.crt"], "names differ") {
		t.Errorf("with another name: got %v, want a problem of apiserver.crt: names differ", found)
	}
}
