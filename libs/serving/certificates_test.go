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

// TestSelfSignedCertificateHasHostNamesAndAddresses checks the host names and addresses in a
// self-signed certificate.
func TestSelfSignedCertificateHasHostNamesAndAddresses(t *testing.T) {
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
		if ipNet, ok := a.(*net.IPNet); ok && ipNet.IP.IsGlobalUnicast() {
			global = ipNet.IP.String()
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
		pair, err := tlsfiles.LoadPair(o.CertFile, o.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		leaf := pair.Certificate().Leaf
		has := func(name string) bool {
			return slices.Contains(leaf.DNSNames, name) || slices.ContainsFunc(leaf.IPAddresses,
				func(ip net.IP) bool { return ip.String() == name })
		}
		for _, wantName := range test.want {
			if wantName != "" && !has(wantName) {
				t.Errorf("%s: got names %v, %v, want %s among them", name, leaf.DNSNames, leaf.IPAddresses, wantName)
			}
		}
		for _, wantName := range test.none {
			if wantName != "" && has(wantName) {
				t.Errorf("%s: got name %s, want it absent", name, wantName)
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
		t.Errorf("folder for generated certificates: got error %v, want that it does not exist", err)
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
			t.Errorf("missing %s: got error %v, want %v", name, err, os.ErrNotExist)
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
			t.Errorf("HTTP/2 disabled: %t: got error %v, want an error about --tls-cipher-suites: %t", disabled, err, !disabled)
		}
		server.Close()
	}
}

// TestEachCertificateHasMetricWithItsUse checks that each certificate is reported with its use and
// file.
func TestEachCertificateHasMetricWithItsUse(t *testing.T) {
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
	frontCA, err := tlsfiles.LoadBundle(file("front.crt"))
	if err != nil {
		t.Fatal(err)
	}
	o.ExtraClientCAs = []*tlsfiles.Bundle{frontCA}
	cert, key, err := tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{Dir: dir, Name: "name", DNS: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	o.SNI = []tlsfiles.NamedPair{{CertFile: cert, KeyFile: key}}
	server := startServer(t, o, nil, helloHandler)
	families, err := server.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		if family.GetName() != "binnacle_certificate_expiration_timestamp_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			got = append(got, metric.GetLabel()[1].GetValue()+" "+metric.GetLabel()[0].GetValue())
		}
	}
	slices.Sort(got)
	want := []string{"client-ca " + o.ClientCAFile, "request-header-ca " + filepath.Join(dir, "front.crt"),
		"serving " + o.CertFile, "sni " + cert}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestClientWithoutServerNameGetsCertificateForAddress checks the certificate for clients that
// connect to an address and send no name.
func TestClientWithoutServerNameGetsCertificateForAddress(t *testing.T) {
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
	asked := func(options *serving.Options) (bool, *testServer) {
		server := startServer(t, options, nil, helloHandler)
		asked := false
		conn, err := tls.Dial("tcp", server.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asked = true
				return &tls.Certificate{}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		return asked, server
	}
	wasRequested, server := asked(testOptions(t))
	if _, ok := server.VerifyOptions(); wasRequested || ok || server.ClientCAs() != nil || server.ClientCABundle() != nil {
		t.Errorf("without a client CA: certificate requested: %t, verified: %t, CAs %v, bundle %v; want none",
			wasRequested, ok, server.ClientCAs(), server.ClientCABundle())
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, newCA(t).pem, 0o600); err != nil {
		t.Fatal(err)
	}
	bundle, err := tlsfiles.LoadBundle(file)
	if err != nil {
		t.Fatal(err)
	}
	options := testOptions(t)
	options.ExtraClientCAs = []*tlsfiles.Bundle{bundle}
	wasRequested, server = asked(options)
	opts, ok := server.VerifyOptions()
	if !wasRequested || ok || server.ClientCAs() != nil {
		t.Errorf("extra CA: got certificates requested: %t, verified: %t, want requested only", wasRequested, ok)
	}
	if !slices.Equal(opts.KeyUsages, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		t.Errorf("got key usages %v, want client authentication only", opts.KeyUsages)
	}
}

// TestClientsBelowMinTLSVersionAreRejected checks which TLS versions of clients are accepted for
// each value of the flag.
func TestClientsBelowMinTLSVersionAreRejected(t *testing.T) {
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

// TestNamedPairsAreParsed checks the syntax of --tls-sni-cert-key.
func TestNamedPairsAreParsed(t *testing.T) {
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
