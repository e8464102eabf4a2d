package webhookclient_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// TestCertificateErrorsAreCounted checks that only certificates without a name or signed with SHA-1 are
// counted, each in its counter.
func TestCertificateErrorsAreCounted(t *testing.T) {
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name          string
		key           crypto.Signer
		names         []string
		addresses     []net.IP
		signed        x509.SignatureAlgorithm
		unnamed, sha1 float64
	}{
		{name: "no flaw", key: ecKey, names: []string{"here"}},
		{name: "no name", key: ecKey, unnamed: 1},
		{name: "another name", key: ecKey, names: []string{"there"}},
		{name: "an address", key: ecKey, addresses: []net.IP{{127, 0, 0, 1}}},
		{name: "SHA-1 with ECDSA", key: ecKey, names: []string{"here"}, signed: x509.ECDSAWithSHA1, sha1: 1},
		{name: "SHA-1 with RSA", key: rsaKey, names: []string{"here"}, signed: x509.SHA1WithRSA, sha1: 1},
	} {
		root := issueCertificate(t, &x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign}, nil, test.key)
		leaf := issueCertificate(t, &x509.Certificate{DNSNames: test.names, IPAddresses: test.addresses, SignatureAlgorithm: test.signed}, root, test.key)
		roots := x509.NewCertPool()
		roots.AddCert(root)
		_, flaw := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "here"})
		if (flaw == nil) != (test.name == "no flaw") {
			t.Errorf("flaw %q: got error %v, want one unless there is no flaw", test.name, flaw)
		}
		unnamed, sha1 := prometheus.NewCounter(prometheus.CounterOpts{}), prometheus.NewCounter(prometheus.CounterOpts{})
		webhookclient.CountCertificateErrors(&tls.CertificateVerificationError{Err: flaw}, unnamed, sha1)
		if n, m := counterValue(t, unnamed), counterValue(t, sha1); n != test.unnamed || m != test.sha1 {
			t.Errorf("%s: got counts %v without a name, %v signed with SHA-1, want %v, %v (error %v)",
				test.name, n, m, test.unnamed, test.sha1, flaw)
		}
	}
	unnamed, sha1 := prometheus.NewCounter(prometheus.CounterOpts{}), prometheus.NewCounter(prometheus.CounterOpts{})
	for _, other := range []error{errors.New("refused"), x509.UnknownAuthorityError{}} {
		webhookclient.CountCertificateErrors(other, unnamed, sha1)
	}
	if counterValue(t, unnamed) != 0 || counterValue(t, sha1) != 0 {
		t.Errorf("unrelated errors: got counts %v, %v, want 0", counterValue(t, unnamed), counterValue(t, sha1))
	}
}

// issueCertificate creates a certificate for a key, signed by another certificate or by itself.
func issueCertificate(t *testing.T, c, by *x509.Certificate, key crypto.Signer) *x509.Certificate {
	t.Helper()
	c.SerialNumber, c.Subject, c.NotAfter, c.BasicConstraintsValid = big.NewInt(1), pkix.Name{CommonName: "here"}, time.Now().Add(time.Hour), true
	if by == nil {
		by = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// counterValue returns the value of a counter.
func counterValue(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	m := &dto.Metric{}
	if err := c.Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}
