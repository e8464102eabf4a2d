package certchain_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"binnacle/libs/certchain"
)

// authority is a certificate with its key.
type authority struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// issue returns a certificate that an authority signed; nil for a self-signed one.
func issue(t *testing.T, by *authority, name string, isCA bool) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotAfter:     time.Now().Add(time.Hour),
		IsCA:         isCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if !isCA {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		template.DNSNames = []string{name}
	}
	if by == nil {
		by = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Certificate, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{c, key}
}

// TestVerify checks which presented certificates form a trusted chain, in any order and with
// unrelated ones among them.
func TestVerify(t *testing.T) {
	root := issue(t, nil, "root", true)
	first := issue(t, root, "first", true)
	second := issue(t, first, "second", true)
	client := issue(t, second, "client", false)
	other := issue(t, nil, "second", true)                          // the name of a trusted one
	forged := issue(t, issue(t, nil, "other", true), "first", true) // another issuer
	leaf := issue(t, root, "leaf", false)
	below := issue(t, leaf, "below", false) // a leaf is not an issuer
	pool := x509.NewCertPool()
	pool.AddCert(root.Certificate)
	options := x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range []struct {
		name      string
		presented []*authority
		want      string // part of the error, "" for none
	}{
		{name: "issued by the root", presented: []*authority{leaf}, want: ""},
		{name: "a chain", presented: []*authority{client, second, first}, want: ""},
		{name: "a chain with the root", presented: []*authority{client, second, first, root}, want: ""},
		{name: "a chain in another order", presented: []*authority{client, first, second}, want: ""},
		{name: "a chain among others", presented: []*authority{client, other, second, forged, first}, want: ""},
		{name: "a missing intermediate", presented: []*authority{client, second}, want: "unknown authority"},
		{name: "a leaf as an issuer", presented: []*authority{below, leaf}, want: "unknown authority"},
		{name: "a CA as a client", presented: []*authority{first}, want: ""},
		{
			name:      "ten certificates",
			presented: append([]*authority{client, second, first}, slices.Repeat([]*authority{other}, 7)...),
			want:      "",
		},
		{name: "eleven certificates",
			presented: append([]*authority{client, second, first}, slices.Repeat([]*authority{other}, 8)...),
			want:      "11 certificates were presented"},
	} {
		var presented []*x509.Certificate
		for _, p := range c.presented {
			presented = append(presented, p.Certificate)
		}
		_, err := certchain.Verify(presented, options)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// A check of a signature is as expensive as the owner of the key likes.
// The error of crypto/x509 names an issuer whose key it has used in vain.
func TestUntrustedKeysAreNotUsed(t *testing.T) {
	pool := x509.NewCertPool()
	pool.AddCert(issue(t, nil, "root", true).Certificate)
	client := issue(t, issue(t, nil, "issuer", true), "client", false)
	presented := []*x509.Certificate{client.Certificate, issue(t, nil, "issuer", true).Certificate}
	_, err := certchain.Verify(presented, x509.VerifyOptions{Roots: pool})
	if err == nil || strings.Contains(err.Error(), "candidate authority") {
		t.Errorf("got %v, want an error that names no candidate", err)
	}
}

// TestBoundVerifiesServers checks that a client configured by Bound accepts only servers with a
// trusted chain and the expected name.
func TestBoundVerifiesServers(t *testing.T) {
	root := issue(t, nil, "root", true)
	intermediate := issue(t, root, "intermediate", true)
	pool := x509.NewCertPool()
	pool.AddCert(root.Certificate)
	for _, c := range []struct {
		name, want string // part of the error, "" for none
		by         *authority
		config     *tls.Config
	}{
		{name: "trusted", by: intermediate, config: &tls.Config{RootCAs: pool, ServerName: "server"}},
		{
			name:   "another name",
			want:   "valid for server, not other",
			by:     intermediate,
			config: &tls.Config{RootCAs: pool, ServerName: "other"},
		},
		{name: "another authority", want: "tls: failed to verify certificate: x509: certificate signed by unknown authority",
			by: issue(t, nil, "other", true), config: &tls.Config{RootCAs: pool, ServerName: "server"}},
		{
			name:   "no verification",
			by:     issue(t, nil, "other", true),
			config: &tls.Config{ServerName: "other", InsecureSkipVerify: true},
		},
	} {
		server := issue(t, c.by, "server", false)
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			_ = tls.Server(there, &tls.Config{Certificates: []tls.Certificate{{
				Certificate: [][]byte{server.Raw, c.by.Raw},
				PrivateKey:  server.key,
			}}}).Handshake()
			_, _ = io.Copy(io.Discard, there)
		}()
		certchain.Bound(c.config)
		err := tls.Client(here, c.config).Handshake()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		here.Close()
	}
}

// TestDialTLSVerifiesHostOfAddress checks the name, and that an untrusted key is not used. The
// error of crypto/x509 would name it as a candidate.
func TestDialTLSVerifiesHostOfAddress(t *testing.T) {
	root := issue(t, nil, "root", true)
	pool := x509.NewCertPool()
	pool.AddCert(root.Certificate)
	server := issue(t, root, "server", false)
	forged := issue(t, issue(t, nil, "other", true), "other", true)
	fromForged := issue(t, forged, "server", false)
	for _, c := range []struct {
		name, addr, want string // part of the error, "" for none
		chain            []*authority
		config           *tls.Config
	}{
		{name: "host of the address", addr: "server:443", chain: []*authority{server}, config: &tls.Config{RootCAs: pool}},
		{name: "another host", addr: "other:443", want: "valid for server, not other", chain: []*authority{server},
			config: &tls.Config{RootCAs: pool}},
		{name: "address", addr: "10.0.0.1:443", want: "doesn't contain any IP SANs", chain: []*authority{server},
			config: &tls.Config{RootCAs: pool}},
		{
			name:   "configured name",
			addr:   "other:443",
			chain:  []*authority{server},
			config: &tls.Config{RootCAs: pool, ServerName: "server"},
		},
		{name: "another authority", addr: "server:443", want: "certificate signed by unknown authority",
			chain: []*authority{fromForged, forged}, config: &tls.Config{RootCAs: pool}},
		{name: "no port", addr: "server", want: "missing port", chain: []*authority{server}, config: &tls.Config{RootCAs: pool}},
	} {
		t.Run(c.name, func(t *testing.T) {
			presented := tls.Certificate{PrivateKey: c.chain[0].key}
			for _, a := range c.chain {
				presented.Certificate = append(presented.Certificate, a.Raw)
			}
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{presented}})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				if conn, err := l.Accept(); err == nil {
					_, _ = io.Copy(io.Discard, conn)
					conn.Close()
				}
			}()
			dial := certchain.DialTLS(func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
			}, c.config, time.Minute)
			conn, err := dial(t.Context(), "tcp", c.addr)
			if err == nil {
				conn.Close()
			}
			if c.want == "" && err != nil ||
				c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(),
					"candidate")) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
