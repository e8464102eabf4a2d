package callerauth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"binnacle/libs/clocktest"
)

// authority issues certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key}
	root := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ca"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	a.cert = a.sign(root, root)
	return a
}

func (a *authority) sign(template, issuer *x509.Certificate) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &a.key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return out
}

func (a *authority) client(name string, until time.Time) *x509.Certificate {
	return a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     until,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.cert)
}

func (a *authority) verify() (x509.VerifyOptions, bool) {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

func requestWithCerts(certs ...*x509.Certificate) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: certs}
	return r
}

func newGuard(t *testing.T, o Options, verify func() (x509.VerifyOptions, bool)) *Guard {
	t.Helper()
	g, err := NewGuard(&o, verify)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestCheckAcceptsTrustedCertificatesWithAllowedNames checks that a caller needs a valid client
// certificate with an allowed name, unless any client is allowed.
func TestCheckAcceptsTrustedCertificatesWithAllowedNames(t *testing.T) {
	trusted, other := newAuthority(t), newAuthority(t)
	later := time.Now().Add(time.Hour)
	api := trusted.client("api", later)
	server := trusted.sign(&x509.Certificate{
		SerialNumber: big.NewInt(3),
		Subject:      pkix.Name{CommonName: "api"},
		NotAfter:     later,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, trusted.cert)
	withoutTLS := httptest.NewRequest(http.MethodPost, "/", nil)
	for name, test := range map[string]struct {
		request *http.Request
		options Options
		ok      bool
	}{
		"no names configured": {request: requestWithCerts(api), options: Options{}, ok: true},
		"allowed name": {
			request: requestWithCerts(api),
			options: Options{Names: []string{"x", "api"}},
			ok:      true,
		},
		"another name": {request: requestWithCerts(api), options: Options{Names: []string{"x"}}, ok: false},
		"certificate of another CA": {
			request: requestWithCerts(other.client("api", later)),
			options: Options{Names: []string{"api"}},
			ok:      false,
		},
		"server certificate": {request: requestWithCerts(server), options: Options{}, ok: false},
		"expired certificate": {
			request: requestWithCerts(trusted.client("api", time.Now().Add(-time.Minute))),
			options: Options{},
			ok:      false,
		},
		"no certificate":                     {request: requestWithCerts(), options: Options{}, ok: false},
		"no TLS":                             {request: withoutTLS, options: Options{}, ok: false},
		"no certificate, any client allowed": {request: requestWithCerts(), options: Options{AnyClient: true}, ok: true},
		"no TLS, any client allowed":         {request: withoutTLS, options: Options{AnyClient: true}, ok: true},
	} {
		guard := newGuard(t, test.options, trusted.verify)
		for range 2 { // the second result may be cached
			if err := guard.Check(test.request); (err == nil) != test.ok {
				t.Errorf("%s: Check() = %v, want success: %v", name, err, test.ok)
			}
		}
	}
	withoutCA := newGuard(t, Options{}, func() (x509.VerifyOptions, bool) {
		o, _ := trusted.verify()
		return o, false
	})
	if withoutCA.Check(requestWithCerts(api)) == nil {
		t.Error("Check() of a client without a CA to verify it = nil, want an error")
	}
}

// TestCertificateIsAcceptedUntilItExpiresOrCAsChange checks that a certificate is accepted until it
// expires or the CAs change.
func TestCertificateIsAcceptedUntilItExpiresOrCAsChange(t *testing.T) {
	trusted, other := newAuthority(t), newAuthority(t)
	options, _ := trusted.verify()
	now := time.Now()
	guard := newGuard(t, Options{}, func() (x509.VerifyOptions, bool) { return options, true })
	guard.now = func() time.Time { return now }
	r := requestWithCerts(trusted.client("api", now.Add(20*time.Second)))
	if err := guard.Check(r); err != nil {
		t.Fatal(err)
	}
	now = now.Add(30 * time.Second)
	if guard.Check(r) == nil {
		t.Error("Check() of an expired certificate = nil, want an error")
	}
	r = requestWithCerts(trusted.client("api", now.Add(time.Hour)))
	if err := guard.Check(r); err != nil {
		t.Fatal(err)
	}
	options, _ = other.verify()
	if guard.Check(r) == nil {
		t.Error("Check() of a certificate of a removed CA = nil, want an error")
	}
}

// TestCachedResultIsIgnoredAfterClockChange checks that a cached result is not used after the clock
// was set.
func TestCachedResultIsIgnoredAfterClockChange(t *testing.T) {
	trusted := newAuthority(t)
	options, _ := trusted.verify()
	read := time.Now()
	for name, ahead := range map[string]time.Duration{"ahead": 3 * time.Hour, "back": -3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			now := read
			guard := newGuard(t, Options{}, func() (x509.VerifyOptions, bool) { return options, true })
			guard.now = func() time.Time { return now }
			r := requestWithCerts(trusted.client("api", read.Add(time.Hour)))
			if err := guard.Check(r); err != nil {
				t.Fatal(err)
			}
			now = clocktest.Set(t, read, ahead)
			if guard.Check(r) == nil {
				t.Errorf("Check() at %v, outside the validity of the certificate, = nil, want an error", now)
			}
		})
	}
}

// TestOptionsRequireClientCAUnlessAnyClientIsAllowed checks which combinations of flags are valid
// with and without a client CA.
func TestOptionsRequireClientCAUnlessAnyClientIsAllowed(t *testing.T) {
	for _, test := range []struct {
		args   []string
		caFile string
		want   string
	}{
		{args: nil, caFile: "ca.crt", want: ""},
		{args: nil, caFile: "", want: "--client-ca-file is required"},
		{args: []string{"--allowed-client-names=a"}, caFile: "ca.crt", want: ""},
		{args: []string{"--insecure-allow-any-client"}, caFile: "", want: ""},
		{args: []string{"--insecure-allow-any-client", "--allowed-client-names=a"}, caFile: "ca.crt", want: "contradict each other"},
		{args: []string{"--allowed-client-names=a,,b"}, caFile: "ca.crt", want: "a name is empty"},
	} {
		var options Options
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		options.AddFlags(flags)
		if err := flags.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		err := errors.Join(options.Validate(test.caFile)...)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v with CA %q: %v, want %q", test.args, test.caFile, err, test.want)
		}
	}
}
