package fanout

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// writeCertificates writes a CA and a certificate for clients and for servers on the loopback
// address.
func writeCertificates(t *testing.T) (ca, cert, key string) {
	t.Helper()
	caKey := newKey(t)
	leafKey := newKey(t)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "replica"},
		NotBefore:    template.NotBefore,
		NotAfter:     template.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, template, template, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, template, &leafKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("ca.crt", "CERTIFICATE", caDER), write("tls.crt", "CERTIFICATE", leafDER), write("tls.key", "EC PRIVATE KEY", keyDER)
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// secureServer starts a server that requires client certificates of the CA.
func secureServer(t *testing.T, caFile, cert, key string) (url string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	data, err := os.ReadFile(caFile)
	if err != nil || !pool.AppendCertsFromPEM(data) {
		t.Fatalf("read %s: %v", caFile, err)
	}
	srv, err := server.NewServer(&server.Options{
		Host:      "127.0.0.1",
		Port:      server.RANDOM_PORT,
		NoSigs:    true,
		NoLog:     true,
		TLS:       true,
		TLSVerify: true,
		TLSConfig: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{pair},
			ClientCAs:    pool,
			ClientAuth:   tls.RequireAndVerifyClientCert,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("timeout: got no NATS server, want one")
	}
	t.Cleanup(func() { stopNATS(srv) })
	return "tls://" + srv.Addr().String()
}

// TestReplicaNeedsClientCertificateForNATS checks that a replica with a client certificate is connected, and that one without reads
// from the store.
func TestReplicaNeedsClientCertificateForNATS(t *testing.T) {
	ca, cert, key := writeCertificates(t)
	url := secureServer(t, ca, cert, key)
	options := NewOptions()
	options.Servers = []string{url, url}
	options.CAFile = ca
	options.CertFile = cert
	options.KeyFile = key
	options.ClusterID = "blue"
	store := newFakeStore()
	elector := newFakeElector(store)
	connect := func(id string, options Options) *process {
		f, err := New(Config{Options: options, Store: store, Elector: elector, Root: testRoot, ID: id, Logger: quietLog()})
		if err != nil {
			t.Fatal(err)
		}
		p := &process{Fanout: f, from: store.newest(), nextBatch: make(chan struct{})}
		p.recorded.applied = p.from
		runProcess(t, p)
		return p
	}
	connect("p", options).awaitSource(t, sourceLocal)
	known := connect("c", options)
	known.awaitSource(t, sourceNATS)

	options.CertFile = ""
	options.KeyFile = ""
	unknown := connect("u", options)
	store.write(1, 100)
	for _, p := range []*process{known, unknown} {
		p.awaitCurrent(t, store)
	}
	if unknown.State().Connected {
		t.Error("replica without a client certificate: got a connection, want none")
	}
}
