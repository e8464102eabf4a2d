package serving_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"binnacle/libs/options"
	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
	"binnacle/libs/serving/tlsfiles"
)

// TestSelfSignedCertificateNames checks the host names and addresses in a self-signed certificate.
func TestSelfSignedCertificateNames(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	global := ""
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			global = n.IP.String()
		}
	}
	for name, test := range map[string]struct {
		change     func(*serving.Options)
		want, none []string
	}{
		"one address": {change: func(o *serving.Options) {
			o.BindAddress, o.AdvertiseAddress = net.ParseIP("192.0.2.1"), net.ParseIP("192.0.2.2")
			o.AlternateNames = []string{"kubernetes.default", "no_name", "localhost"}
		},
			want: []string{"localhost", strings.ToLower(host), "kubernetes.default", "127.0.0.1", "::1", "192.0.2.1",
				"192.0.2.2"},
			none: []string{"no_name", global},
		},
		"every address": {change: func(o *serving.Options) { o.BindAddress = net.IPv4zero },
			want: []string{"localhost", "127.0.0.1", global}, none: []string{"0.0.0.0"}},
	} {
		o := testOptions(t)
		test.change(o)
		if err := o.Complete(); err != nil {
			t.Fatal(err)
		}
		p, err := tlsfiles.LoadPair(o.CertFile, o.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		leaf := p.Certificate().Leaf
		has := func(n string) bool {
			return slices.Contains(leaf.DNSNames, n) || slices.ContainsFunc(leaf.IPAddresses,
				func(ip net.IP) bool { return ip.String() == n })
		}
		for _, n := range test.want {
			if n != "" && !has(n) {
				t.Errorf("%s: got names %v, %v, want %s among them", name, leaf.DNSNames, leaf.IPAddresses, n)
			}
		}
		for _, n := range test.none {
			if n != "" && has(n) {
				t.Errorf("%s: got name %s, want it absent", name, n)
			}
		}
	}
}

// TestConfiguredCertificateIsUsed checks that no certificate is created if one is configured.
func TestConfiguredCertificateIsUsed(t *testing.T) {
	o := testOptions(t)
	dir := filepath.Join(t.TempDir(), "created")
	o.CertFile, o.KeyFile, o.CertDir = "a", "b", dir
	if err := o.Complete(); err != nil || o.CertFile != "a" || o.KeyFile != "b" {
		t.Errorf("Complete() = %v, files %s, %s, want a, b unchanged", err, o.CertFile, o.KeyFile)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
	half := testOptions(t)
	half.KeyFile, half.CertDir = "b", dir
	if err := half.Complete(); err != nil || half.CertFile != "" || len(half.Validate()) == 0 {
		t.Errorf("key without certificate: got %v, certificate file %q, want none generated and a validation error",
			err, half.CertFile)
	}
	blocked := testOptions(t)
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	blocked.CertDir = filepath.Join(dir, "below")
	if err := blocked.Complete(); err == nil {
		t.Errorf("Complete() with the folder %s below a file = nil, want an error", blocked.CertDir)
	}
}

// TestNewServerFailsWithoutFiles checks that NewServer fails if a configured file is missing.
func TestNewServerFailsWithoutFiles(t *testing.T) {
	for name, change := range map[string]func(*serving.Options){
		"certificate": func(o *serving.Options) { o.CertFile = "/no/such" },
		"another certificate": func(o *serving.Options) {
			o.SNI = []tlsfiles.NamedPair{{CertFile: "/no/such", KeyFile: "/no/such"}}
		},
		"--client-ca-file": func(o *serving.Options) { o.ClientCAFile = "/no/such" },
	} {
		o := testOptions(t)
		if err := o.Complete(); err != nil {
			t.Fatal(err)
		}
		change(o)
		server, err := serving.NewServer(serving.Config{
			Options: o,
			Logger:  discardLogger(),
			Health:  health.New(health.Config{Logger: discardLogger()}),
		})
		if !errors.Is(err, os.ErrNotExist) || strings.HasPrefix(name, "--") && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			server.Close()
		}
	}
}

// TestHTTP2NeedsItsCipherSuite checks that a server without the cipher suite that HTTP/2 requires
// starts only if HTTP/2 is disabled.
func TestHTTP2NeedsItsCipherSuite(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		o := testOptions(t)
		o.CipherSuites, o.DisableHTTP2 = []string{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}, disabled
		if err := o.Complete(); err != nil {
			t.Fatal(err)
		}
		server, err := serving.NewServer(serving.Config{
			Options: o,
			Logger:  discardLogger(),
			Health:  health.New(health.Config{Logger: discardLogger()}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := server.Run(ctx, http.NotFoundHandler(), nil); (err == nil) != disabled ||
			err != nil && !strings.HasPrefix(err.Error(), "--tls-cipher-suites") {
			t.Errorf("disabled %t: %v", disabled, err)
		}
		server.Close()
	}
}

// TestCertificateMetricsByUse checks that each certificate is reported with its use and file.
func TestCertificateMetricsByUse(t *testing.T) {
	o := testOptions(t)
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, newCA(t).pem, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	o.ClientCAFile = file("clients.crt")
	front, err := tlsfiles.LoadBundle(file("front.crt"))
	if err != nil {
		t.Fatal(err)
	}
	o.ExtraClientCAs = []*tlsfiles.Bundle{front}
	cert, key, err := tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{Dir: dir, Name: "name", DNS: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	o.SNI = []tlsfiles.NamedPair{{CertFile: cert, KeyFile: key}}
	r := startServer(t, o, nil, helloHandler)
	families, err := r.counts.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if f.GetName() != "binnacle_certificate_expiration_timestamp_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			got = append(got, m.GetLabel()[1].GetValue()+" "+m.GetLabel()[0].GetValue())
		}
	}
	slices.Sort(got)
	want := []string{"client-ca " + o.ClientCAFile, "request-header-ca " + filepath.Join(dir, "front.crt"),
		"serving " + o.CertFile, "sni " + cert}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestCertificateForAddress checks the certificate for clients that connect to an address and send
// no name.
func TestCertificateForAddress(t *testing.T) {
	o := testOptions(t)
	cert, key, err := tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{
		Dir:  t.TempDir(),
		Name: "address",
		IPs:  []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	o.SNI = []tlsfiles.NamedPair{{CertFile: cert, KeyFile: key}}
	r := startServer(t, o, nil, helloHandler)
	for name, want := range map[string]string{"": "address", "other": "testd"} {
		conn, err := tls.Dial("tcp", r.Addr().String(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
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

// TestClientCertificateIsRequestedForKnownIssuers checks that client certificates are requested
// only if an issuer is configured.
func TestClientCertificateIsRequestedForKnownIssuers(t *testing.T) {
	asked := func(o *serving.Options) (bool, *testServer) {
		r := startServer(t, o, nil, helloHandler)
		asked := false
		conn, err := tls.Dial("tcp", r.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asked = true
				return &tls.Certificate{}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		return asked, r
	}
	a, r := asked(testOptions(t))
	if _, ok := r.VerifyOptions(); a || ok || r.ClientCAs() != nil || r.ClientCABundle() != nil {
		t.Errorf("without a client CA: certificate requested: %t, verified: %t, CAs %v, bundle %v; want none",
			a, ok, r.ClientCAs(), r.ClientCABundle())
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, newCA(t).pem, 0o600); err != nil {
		t.Fatal(err)
	}
	bundle, err := tlsfiles.LoadBundle(file)
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(t)
	o.ExtraClientCAs = []*tlsfiles.Bundle{bundle}
	a, r = asked(o)
	opts, ok := r.VerifyOptions()
	if !a || ok || r.ClientCAs() != nil {
		t.Errorf("extra CA: got certificates requested: %t, verified: %t, want requested only", a, ok)
	}
	if !slices.Equal(opts.KeyUsages, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		t.Errorf("got key usages %v, want client authentication only", opts.KeyUsages)
	}
}

// TestMinTLSVersion checks which TLS versions of clients are accepted for each value of the flag.
func TestMinTLSVersion(t *testing.T) {
	for version, least := range map[string]uint16{
		"":             tls.VersionTLS12,
		"VersionTLS12": tls.VersionTLS12,
		"VersionTLS13": tls.VersionTLS13,
	} {
		o := testOptions(t)
		o.MinTLSVersion = version
		r := startServer(t, o, nil, helloHandler)
		for v := uint16(tls.VersionTLS10); v <= tls.VersionTLS13; v++ {
			conn, err := tls.Dial("tcp", r.Addr().String(), &tls.Config{
				InsecureSkipVerify: true,
				MinVersion:         tls.VersionTLS10,
				MaxVersion:         v,
			})
			if (err == nil) != (v >= least) {
				t.Errorf("minimum %q, client with %s: got error %v, want accepted: %t", version, tls.VersionName(v),
					err, v >= least)
			}
			if err == nil {
				conn.Close()
			}
		}
	}
}

// TestNamedPairs checks the syntax of --tls-sni-cert-key.
func TestNamedPairs(t *testing.T) {
	for value, want := range map[string]string{
		"a.crt,a.key": "a.crt,a.key", "a.crt,a.key:One,*.two": "a.crt,a.key:one,*.two",
		"a.crt": "", "a.crt,": "", ",a.key": "", "a.crt,a.key,more": "", "a.crt,a.key:": "", "a.crt,a.key:one,": "", ":one": "",
	} {
		o := testOptions(t)
		var sections options.Sections
		o.AddFlags(&sections)
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		fs.AddFlagSet(sections.Set("secure serving"))
		err := fs.Parse([]string{"--tls-sni-cert-key=" + value})
		if got := fs.Lookup("tls-sni-cert-key").Value.String(); (err == nil) != (want != "") || got != want {
			t.Errorf("%s: %q, %v, want %q", value, got, err, want)
		}
	}
}
