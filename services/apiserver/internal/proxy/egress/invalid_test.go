package egress_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/egress/egresstest"
)

// TestNewRejectsUnusableProxies checks that errors appear at the start.
func TestNewRejectsUnusableProxies(t *testing.T) {
	cert, key := egresstest.WriteCertificate(t)
	odd := filepath.Join(t.TempDir(), "odd.pem")
	if err := os.WriteFile(odd, []byte("odd"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	over := func(ca, cert, key string) *egress.TCPTransport {
		return &egress.TCPTransport{URL: "https://127.0.0.1:1", TLSConfig: &egress.TLSConfig{CABundle: ca, ClientCert: cert, ClientKey: key}}
	}
	for want, to := range map[string]*egress.TCPTransport{
		"":                          over(cert, cert, key),
		"invalid proxy server url":  {URL: "http://a b%"},
		"failed to read key pair":   over(cert, odd, key),
		"failed to read cert file":  over(folder, cert, key),
		"failed to append CA cert":  over(odd, cert, key),
		"no such file or directory": over(cert, cert, "/no/such"),
	} {
		c := &egress.Configuration{EgressSelections: []egress.Selection{{Name: "etcd", Connection: egress.Connection{ProxyProtocol: egress.HTTPConnect, Transport: &egress.Transport{TCP: to}}}}}
		s, err := egress.New(c, prometheus.NewRegistry())
		if want == "" {
			if err != nil || s.DialerFor(egress.Etcd) == nil {
				t.Errorf("got error %v, want none and a proxy for etcd", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "egress selection etcd") {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestNilSelectorHasNoProxies checks the zero configuration.
func TestNilSelectorHasNoProxies(t *testing.T) {
	if (*egress.Selector)(nil).DialerFor(egress.Cluster) != nil {
		t.Error("got a dialer from a nil Selector")
	}
}

// TestProxyDialsOnlyTCP also checks the default port of a proxy URL.
func TestProxyDialsOnlyTCP(t *testing.T) {
	s := selector(t, prometheus.NewRegistry(), `{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"http://127.66.77.88"}}}`)
	for network, want := range map[string]string{
		"udp": "proxies support only TCP, not udp", "unix": "proxies support only TCP", "tcp": `dialing proxy "127.66.77.88:http" failed`, "tcp4": `dialing proxy "127.66.77.88:http" failed`,
	} {
		if _, err := s.DialerFor(egress.Cluster)(t.Context(), network, "10.0.0.1:80"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", network, err)
		}
	}
}

// TestReadRejectsLongFile checks the size limit.
func TestReadRejectsLongFile(t *testing.T) {
	const text = `{"apiVersion":"apiserver.k8s.io/v1beta1","kind":"EgressSelectorConfiguration"}`
	for size, long := range map[int]bool{1 << 20: false, 1<<20 + 1: true} {
		_, err := egress.Read(file(t, text+strings.Repeat(" ", size-len(text))))
		if got := err != nil && strings.Contains(err.Error(), "the file is too long"); got != long || !long && err != nil {
			t.Errorf("%d bytes: error %v", size, err)
		}
	}
}

// TestDeepCopyIsIndependent changes a copy.
func TestDeepCopyIsIndependent(t *testing.T) {
	made := func() *egress.Configuration {
		return &egress.Configuration{EgressSelections: []egress.Selection{
			{Name: "cluster", Connection: egress.Connection{ProxyProtocol: egress.HTTPConnect, Transport: &egress.Transport{TCP: &egress.TCPTransport{URL: "u", TLSConfig: &egress.TLSConfig{CABundle: "ca"}}}}},
			{Name: "etcd", Connection: egress.Connection{ProxyProtocol: egress.GRPC, Transport: &egress.Transport{UDS: &egress.UDSTransport{UDSName: "s"}}}},
			{Name: "controlplane", Connection: egress.Connection{ProxyProtocol: egress.HTTPConnect, Transport: &egress.Transport{TCP: &egress.TCPTransport{URL: "v"}}}},
			{Name: "direct", Connection: egress.Connection{ProxyProtocol: egress.Direct}},
		}}
	}
	first := made()
	second, ok := first.DeepCopyObject().(*egress.Configuration)
	if !ok || !reflect.DeepEqual(second, made()) {
		t.Fatalf("DeepCopyObject = %v, want %v", second, made())
	}
	all := second.EgressSelections
	all[0].Connection.Transport.TCP.TLSConfig.CABundle = "x"
	all[0].Connection.Transport.TCP.URL = "x"
	all[1].Connection.Transport.UDS.UDSName = "x"
	all[2].Name = "x"
	all[3].Name = "x"
	if !reflect.DeepEqual(first, made()) {
		t.Error("changing the copy changed the original")
	}
}

// TestSecondSelectorOfRegistryFails checks that metrics cannot be registered twice.
func TestSecondSelectorOfRegistryFails(t *testing.T) {
	r := prometheus.NewRegistry()
	c := &egress.Configuration{}
	if _, err := egress.New(c, r); err != nil {
		t.Fatal(err)
	}
	if s, err := egress.New(c, r); err == nil {
		t.Errorf("got %v, want an error", s)
	}
}

// TestCABundleIsOptional checks that the CAs of the operating system are used.
func TestCABundleIsOptional(t *testing.T) {
	cert, key := egresstest.WriteCertificate(t)
	selector(t, prometheus.NewRegistry(), fmt.Sprintf(`{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"https://127.0.0.1:1","tlsConfig":{"clientCert":%q,"clientKey":%q}}}}`, cert, key))
}

// TestWriteDeadlineEndsTunnel checks that a deadline that is removed, or that lies in the past,
// does not end the tunnel.
func TestWriteDeadlineEndsTunnel(t *testing.T) {
	p := &egresstest.Proxy{}
	p.Forward("far.invalid:7", greeter(t, false))
	l, path := egresstest.Socket(t)
	p.ServeGRPC(t, l)
	s := selector(t, prometheus.NewRegistry(), fmt.Sprintf(`{"proxyProtocol":"GRPC","transport":{"uds":{"udsName":%q}}}`, path))
	dial := func() net.Conn {
		conn, err := s.DialerFor(egress.Cluster)(t.Context(), "tcp", "far.invalid:7")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	deadline := func(c net.Conn, at time.Time) {
		if err := c.SetWriteDeadline(at); err != nil {
			t.Error(err)
		}
	}
	back, over, ends := dial(), dial(), dial()
	deadline(back, time.Now().Add(time.Second))
	deadline(back, time.Time{})
	deadline(over, time.Unix(1, 0))
	deadline(ends, time.Now().Add(time.Second))
	if n, err := ends.Read(make([]byte, 1)); err == nil {
		t.Errorf("got %d bytes, want an error", n)
	}
	for name, conn := range map[string]net.Conn{"taken back": back, "over": over} {
		said := make([]byte, 5)
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if _, err := io.ReadFull(conn, said); err != nil || string(said) != "hello" {
			t.Errorf("%s: got %q, %v, want hello", name, said, err)
		}
	}
}
