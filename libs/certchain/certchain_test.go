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

// newRoot returns the self-signed certificate of a CA.
func newRoot(t *testing.T, name string) *authority {
	t.Helper()
	return issueCA(t, nil, name)
}

// issueCA returns the certificate of a CA, signed by issuer.
func issueCA(t *testing.T, issuer *authority, name string) *authority {
	t.Helper()
	return issue(t, issuer, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true})
}

// issueLeaf returns a certificate for clients and servers, signed by issuer.
func issueLeaf(t *testing.T, issuer *authority, name string) *authority {
	t.Helper()
	return issue(t, issuer, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{name},
	})
}

// issue completes the template and returns the certificate, signed by issuer. Without an issuer it
// is self-signed.
func issue(t *testing.T, issuer *authority, template *x509.Certificate) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotAfter = time.Now().Add(time.Hour)
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	if issuer == nil {
		issuer = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.Certificate, key.Public(), issuer.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{c, key}
}

// TestVerifyFindsChainAmongPresentedCertificates checks which presented certificates form a trusted
// chain, in any order and with unrelated ones among them.
func TestVerifyFindsChainAmongPresentedCertificates(t *testing.T) {
	root := newRoot(t, "root")
	upperCA := issueCA(t, root, "first")
	lowerCA := issueCA(t, upperCA, "second")
	client := issueLeaf(t, lowerCA, "client")
	sameName := newRoot(t, "second")                   // the name of a trusted one
	forged := issueCA(t, newRoot(t, "other"), "first") // another issuer
	leaf := issueLeaf(t, root, "leaf")
	belowLeaf := issueLeaf(t, leaf, "below") // a leaf is not an issuer
	pool := x509.NewCertPool()
	pool.AddCert(root.Certificate)
	options := x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, test := range []struct {
		name      string
		presented []*authority
		want      string // part of the error, "" for none
	}{
		{name: "issued by the root", presented: []*authority{leaf}, want: ""},
		{name: "a chain", presented: []*authority{client, lowerCA, upperCA}, want: ""},
		{name: "a chain with the root", presented: []*authority{client, lowerCA, upperCA, root}, want: ""},
		{name: "a chain in another order", presented: []*authority{client, upperCA, lowerCA}, want: ""},
		{name: "a chain among others", presented: []*authority{client, sameName, lowerCA, forged, upperCA}, want: ""},
		{name: "a missing intermediate", presented: []*authority{client, lowerCA}, want: "unknown authority"},
		{name: "a leaf as an issuer", presented: []*authority{belowLeaf, leaf}, want: "unknown authority"},
		{name: "a CA as a client", presented: []*authority{upperCA}, want: ""},
		{
			name:      "ten certificates",
			presented: append([]*authority{client, lowerCA, upperCA}, slices.Repeat([]*authority{sameName}, 7)...),
			want:      "",
		},
		{name: "eleven certificates",
			presented: append([]*authority{client, lowerCA, upperCA}, slices.Repeat([]*authority{sameName}, 8)...),
			want:      "11 certificates were presented"},
	} {
		var presented []*x509.Certificate
		for _, p := range test.presented {
			presented = append(presented, p.Certificate)
		}
		_, err := certchain.Verify(presented, options)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

// TestUntrustedKeysAreNotUsed checks that signatures are verified only with keys of trusted
// authorities, because the owner of a key decides how expensive the verification is. The error of
// crypto/x509 would name an issuer whose key did not verify a signature.
func TestUntrustedKeysAreNotUsed(t *testing.T) {
	pool := x509.NewCertPool()
	pool.AddCert(newRoot(t, "root").Certificate)
	client := issueLeaf(t, newRoot(t, "issuer"), "client")
	presented := []*x509.Certificate{client.Certificate, newRoot(t, "issuer").Certificate}
	_, err := certchain.Verify(presented, x509.VerifyOptions{Roots: pool})
	if err == nil || strings.Contains(err.Error(), "candidate authority") {
		t.Errorf("got %v, want an error that names no candidate", err)
	}
}

// TestBoundAcceptsOnlyTrustedServersWithExpectedName checks that a client configured by Bound
// accepts only servers with a trusted chain and the expected name.
func TestBoundAcceptsOnlyTrustedServersWithExpectedName(t *testing.T) {
	root := newRoot(t, "root")
	intermediate := issueCA(t, root, "intermediate")
	pool := x509.NewCertPool()
	pool.AddCert(root.Certificate)
	for _, test := range []struct {
		name, want string // part of the error, "" for none
		issuer     *authority
		config     *tls.Config
	}{
		{name: "trusted", issuer: intermediate, config: &tls.Config{RootCAs: pool, ServerName: "server"}},
		{
			name:   "another name",
			want:   "valid for server, not other",
			issuer: intermediate,
			config: &tls.Config{RootCAs: pool, ServerName: "other"},
		},
		{name: "another authority", want: "tls: failed to verify certificate: x509: certificate signed by unknown authority",
			issuer: newRoot(t, "other"), config: &tls.Config{RootCAs: pool, ServerName: "server"}},
		{
			name:   "no verification",
			issuer: newRoot(t, "other"),
			config: &tls.Config{ServerName: "other", InsecureSkipVerify: true},
		},
	} {
		server := issueLeaf(t, test.issuer, "server")
		clientConn, serverConn := net.Pipe()
		go func() {
			defer serverConn.Close()
			_ = tls.Server(serverConn, &tls.Config{Certificates: []tls.Certificate{{
				Certificate: [][]byte{server.Raw, test.issuer.Raw},
				PrivateKey:  server.key,
			}}}).Handshake()
			_, _ = io.Copy(io.Discard, serverConn)
		}()
		certchain.Bound(test.config)
		err := tls.Client(clientConn, test.config).Handshake()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
		clientConn.Close()
	}
}

// TestDialTLSVerifiesHostOfAddress checks the name, and that an untrusted key is not used. The
// error of crypto/x509 would name it as a candidate.
func TestDialTLSVerifiesHostOfAddress(t *testing.T) {
	root := newRoot(t, "root")
	pool := x509.NewCertPool()
	pool.AddCert(root.Certificate)
	server := issueLeaf(t, root, "server")
	forged := issueCA(t, newRoot(t, "other"), "other")
	fromForged := issueLeaf(t, forged, "server")
	for _, test := range []struct {
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
		t.Run(test.name, func(t *testing.T) {
			presented := tls.Certificate{PrivateKey: test.chain[0].key}
			for _, a := range test.chain {
				presented.Certificate = append(presented.Certificate, a.Raw)
			}
			listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{presented}})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				if conn, err := listener.Accept(); err == nil {
					_, _ = io.Copy(io.Discard, conn)
					conn.Close()
				}
			}()
			dial := certchain.DialTLS(func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, listener.Addr().String())
			}, test.config, time.Minute)
			conn, err := dial(t.Context(), "tcp", test.addr)
			if err == nil {
				conn.Close()
			}
			if test.want == "" && err != nil ||
				test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(),
					"candidate")) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
