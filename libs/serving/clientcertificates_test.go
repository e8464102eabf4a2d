package serving_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/libs/serving"
	"binnacle/libs/serving/tlsfiles"
)

// ca signs client certificates for a test.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// newCA creates a certificate authority.
func newCA(t *testing.T) *ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: t.Name()}, IsCA: true,
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	// The name differs for each CA, because clients select certificates by issuer name.
	template.Subject.SerialNumber = key.X.String()
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &ca{cert: cert, key: key, pem: tlsfiles.EncodeCertificate(der)}
}

func (c *ca) client(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader,
		&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
			NotBefore:   time.Now().Add(-time.Hour),
			NotAfter:    time.Now().Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, c.cert, key.Public(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestReloadedClientCAAppliesToNewConnections checks that TLS requests client certificates without
// verifying them, and that a reloaded CA applies to the next connection.
func TestReloadedClientCAAppliesToNewConnections(t *testing.T) {
	options := testOptions(t)
	oldCA, rotatedCA := newCA(t), newCA(t)
	options.ClientCAFile = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(options.ClientCAFile, oldCA.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	testServer := startServer(t, options, nil, func(s *serving.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			opts, ok := s.VerifyOptions()
			if !ok || len(req.TLS.PeerCertificates) == 0 {
				io.WriteString(w, "anonymous")
				return
			}
			if _, err := req.TLS.PeerCertificates[0].Verify(opts); err != nil {
				io.WriteString(w, "unverified")
				return
			}
			io.WriteString(w, req.TLS.PeerCertificates[0].Subject.CommonName)
		})
	})
	userWithCertificateOf := func(c *ca) string {
		testServer.client = newClient(t, options.CertFile, c.client(t, "jane"))
		_, body := testServer.get(t, "/whoami")
		return body
	}
	if got := userWithCertificateOf(oldCA); got != "jane" {
		t.Errorf("known CA: %q, want \"jane\"", got)
	}
	if got := userWithCertificateOf(rotatedCA); got != "anonymous" {
		t.Errorf("unknown CA: %q, want \"anonymous\"", got)
	}
	testServer.client = newClient(t, options.CertFile, nil)
	if _, got := testServer.get(t, "/whoami"); got != "anonymous" {
		t.Errorf("no certificate: %q, want \"anonymous\"", got)
	}
	if err := tlsfiles.WriteFile(options.ClientCAFile, rotatedCA.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := testServer.ClientCABundle().Reload(); err != nil {
		t.Fatal(err)
	}
	if got := userWithCertificateOf(rotatedCA); got != "jane" {
		t.Errorf("rotated CA: %q, want \"jane\"", got)
	}
	if got := userWithCertificateOf(oldCA); got != "anonymous" {
		t.Errorf("retired CA: %q, want \"anonymous\"", got)
	}
}

// TestCertificateMatchesServerName checks which certificate a client gets for each server name.
func TestCertificateMatchesServerName(t *testing.T) {
	options := testOptions(t)
	dir := t.TempDir()
	for _, name := range []string{"exact", "wild", "own"} {
		cert, key, err := tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{
			Dir:  dir,
			Name: name,
			DNS:  []string{name + ".example.org"},
		})
		if err != nil {
			t.Fatal(err)
		}
		names := map[string][]string{"exact": {"exact.example.com"}, "wild": {"*.wild.example.com"}}[name]
		options.SNI = append(options.SNI, tlsfiles.NamedPair{CertFile: cert, KeyFile: key, Names: names})
	}
	options.SNI[0].Names = append(options.SNI[0].Names, "*.") // matches no name
	testServer := startServer(t, options, nil, helloHandler)
	for name, want := range map[string]string{
		"exact.example.com": "exact", "EXACT.example.com": "exact", "exact.example.org": "testd", "a.wild.example.com": "wild",
		"a.b.wild.example.com": "testd", "own.example.org": "own", "": "testd", "other": "testd",
	} {
		conn, err := tls.Dial("tcp", testServer.Addr().String(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		got, _, _ := strings.Cut(conn.ConnectionState().PeerCertificates[0].Subject.CommonName, "-self-signed")
		conn.Close()
		if got != want {
			t.Errorf("%q is served the certificate %q, want %q", name, got, want)
		}
	}
}
