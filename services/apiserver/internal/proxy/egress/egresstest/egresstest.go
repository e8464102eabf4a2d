// Package egresstest contains proxies for tests: for HTTP CONNECT, and for konnectivity's gRPC.
package egresstest

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// Proxy forwards known addresses to other ones, and records the requested addresses.
type Proxy struct {
	// StopReading makes tunnels accept any connection and then stop reading.
	StopReading bool

	mu        sync.Mutex
	targets   map[string]string // by requested address
	requested []string
}

// Forward forwards connections for addr to the address to. Both are host:port.
func (p *Proxy) Forward(addr, to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.targets == nil {
		p.targets = map[string]string{}
	}
	p.targets[addr] = to
}

// RequestedAddresses returns the requested addresses without duplicates, sorted.
func (p *Proxy) RequestedAddresses() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(p.requested)))
}

// dial records a requested address and connects to its target.
func (p *Proxy) dial(addr string) (net.Conn, error) {
	p.mu.Lock()
	p.requested = append(p.requested, addr)
	to, ok := p.targets[addr]
	p.mu.Unlock()
	if !ok {
		return nil, &net.AddrError{Err: "no such host here", Addr: addr}
	}
	return net.Dial("tcp", to)
}

// Connect serves HTTP CONNECT until the test ends.
func (p *Proxy) Connect(t testing.TB, listener net.Listener) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
}

// serve responds to a CONNECT request and copies between both connections.
func (p *Proxy) serve(conn net.Conn) {
	defer conn.Close()
	read := bufio.NewReader(conn)
	r, err := http.ReadRequest(read)
	if err != nil || r.Method != http.MethodConnect {
		return
	}
	server, err := p.dial(r.Host)
	if err != nil {
		_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer server.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, read)
		_ = server.Close()
	}()
	_, _ = io.Copy(conn, server)
}

// Socket listens on a Unix domain socket of the test.
func Socket(t testing.TB) (net.Listener, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "egress") // socket paths must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return l, path
}

// WriteCertificate returns a self-signed key pair for client and server at 127.0.0.1.
func WriteCertificate(t testing.TB) (cert, key string) {
	t.Helper()
	privateKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, privateKey.Public(), privateKey)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(privateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der},
		key:  {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// ListenTLS listens with TLS at 127.0.0.1, for clients with a certificate from the same files.
func ListenTLS(t testing.TB, cert, key string) net.Listener {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
