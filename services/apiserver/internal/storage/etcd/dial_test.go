package etcd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/etcd"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestDialRejectsInvalidOptions checks the errors of invalid addresses and files.
func TestDialRejectsInvalidOptions(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	https := []string{"https://127.0.0.1:1"}
	for name, test := range map[string]struct {
		opts etcd.DialOptions
		want string
	}{
		"no servers":     {opts: etcd.DialOptions{}, want: "no servers"},
		"no URL":         {opts: etcd.DialOptions{Servers: []string{"127.0.0.1:2379"}}, want: "is not a URL"},
		"scheme":         {opts: etcd.DialOptions{Servers: []string{"ftp://a"}}, want: `scheme "ftp"`},
		"mixture":        {opts: etcd.DialOptions{Servers: []string{"https://a", "http://b"}}, want: "some servers"},
		"useless CA":     {opts: etcd.DialOptions{Servers: []string{"http://a"}, CAFile: junk}, want: "not https"},
		"missing CA":     {opts: etcd.DialOptions{Servers: https, CAFile: filepath.Join(dir, "none")}, want: "no such file"},
		"junk CA":        {opts: etcd.DialOptions{Servers: https, CAFile: junk}, want: "holds no certificate"},
		"no key":         {opts: etcd.DialOptions{Servers: https, CertFile: junk}, want: "together"},
		"junk cert, key": {opts: etcd.DialOptions{Servers: https, CertFile: junk, KeyFile: junk}, want: "client certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := etcd.Dial(test.opts)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got error %v, want %q", err, test.want)
			}
		})
	}
}

// TestDialUsesCurrentCertificateAndRejectsOtherCA checks that the client uses the certificate that is on disk when it connects, and
// rejects a server with a certificate of another CA.
func TestDialUsesCurrentCertificateAndRejectsOtherCA(t *testing.T) {
	dir := t.TempDir()
	authority := newAuthority(t)
	other := newAuthority(t)
	caFile := authority.writeCertificate(t, dir, "ca")
	otherFile := other.writeCertificate(t, dir, "other")
	serverCert, err := tls.LoadX509KeyPair(authority.issue(t, dir, "server"))
	if err != nil {
		t.Fatal(err)
	}
	names := make(chan string, 100)
	pool := x509.NewCertPool()
	pool.AddCert(authority.cert)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := tls.NewListener(plain, &tls.Config{
		Certificates: []tls.Certificate{serverCert},
		ClientCAs:    pool,
		NextProtos:   []string{"h2"},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			names <- s.PeerCertificates[0].Subject.CommonName
			return nil
		},
	})
	proxy := etcdtest.NewProxyOn(t, listener, etcdtest.ListeningServer(t).Endpoint())
	servers := []string{"https://" + plain.Addr().String()}
	certFile, keyFile := authority.issue(t, dir, "client")
	storeTrusting := func(caFile string) *etcd.Store {
		t.Helper()
		client, err := etcd.Dial(etcd.DialOptions{Servers: servers, CAFile: caFile, CertFile: certFile, KeyFile: keyFile})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return etcdtest.NewStore(t, etcd.Config{Client: client})
	}
	store := storeTrusting(caFile)
	if _, err := store.Revision(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := awaitValue(t, "a connection", names); got != "client" {
		t.Fatalf("server got client certificate %q, want client", got)
	}

	newCert, newKey := authority.issue(t, dir, "renewed")
	for from, to := range map[string]string{newCert: certFile, newKey: keyFile} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Cut()
	proxy.Heal()
	if _, err := store.Revision(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := awaitValue(t, "a connection", names); got != "renewed" {
		t.Fatalf("after renewal the server got client certificate %q, want renewed", got)
	}

	err = storeTrusting(otherFile).Ping(t.Context())
	if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Fatalf("server of another CA: got %v, want ErrUnavailable with the certificate error", err)
	}
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = issueCertificate(t, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "authority"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, nil)
	return a
}

func (a *authority) writeCertificate(t *testing.T, dir, name string) string {
	return writePEM(t, filepath.Join(dir, name+".crt"), "CERTIFICATE", a.cert.Raw)
}

// issue writes a certificate for the loopback address.
func (a *authority) issue(t *testing.T, dir, name string) (certFile, keyFile string) {
	t.Helper()
	cert, key := issueCertificate(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, filepath.Join(dir, name+".crt"), "CERTIFICATE", cert.Raw),
		writePEM(t, filepath.Join(dir, name+".key"), "EC PRIVATE KEY", der)
}

// issueCertificate returns a certificate, which is self-signed if by is nil.
func issueCertificate(t *testing.T, template *x509.Certificate, issuer *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(time.Hour)
	if issuer == nil {
		issuer = &authority{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, &key.PublicKey, issuer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func writePEM(t *testing.T, path, kind string, der []byte) string {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
