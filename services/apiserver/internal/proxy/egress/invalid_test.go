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

// TestNewRejectsUnusableProxies checks that New reports invalid URLs and unreadable certificates,
// so that they fail the start and not the first connection.
func TestNewRejectsUnusableProxies(t *testing.T) {
	cert, key := egresstest.WriteCertificate(t)
	odd := filepath.Join(t.TempDir(), "odd.pem")
	if err := os.WriteFile(odd, []byte("odd"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	over := func(ca, cert, key string) *egress.TCPTransport {
		return &egress.TCPTransport{
			URL:       "https://127.0.0.1:1",
			TLSConfig: &egress.TLSConfig{CABundle: ca, ClientCert: cert, ClientKey: key},
		}
	}
	for want, to := range map[string]*egress.TCPTransport{
		"":                          over(cert, cert, key),
		"invalid proxy server url":  {URL: "http://a b%"},
		"failed to read key pair":   over(cert, odd, key),
		"failed to read cert file":  over(folder, cert, key),
		"failed to append CA cert":  over(odd, cert, key),
		"no such file or directory": over(cert, cert, "/no/such"),
	} {
		c := &egress.Configuration{EgressSelections: []egress.Selection{{
			Name:       "etcd",
			Connection: egress.Connection{ProxyProtocol: egress.HTTPConnect, Transport: &egress.Transport{TCP: to}},
		}}}
		s, err := egress.New(c, prometheus.NewRegistry())
		if want == "" {
			if err != nil || s.DialerFor(egress.Etcd) == nil {
				t.Errorf("got error %v, want none and a proxy for etcd", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "egress selection etcd") {
			t.Errorf("New = %v, want an error about etcd that contains %q", err, want)
		}
	}
}

// TestNilSelectorHasNoProxies checks that a nil Selector makes all connections direct.
func TestNilSelectorHasNoProxies(t *testing.T) {
	if (*egress.Selector)(nil).DialerFor(egress.Cluster) != nil {
		t.Error("nil Selector: got a dialer, want none")
	}
}

// TestProxyDialsOnlyTCP checks that a dial function supports only TCP, and that the port of a proxy
// URL defaults to that of its scheme.
func TestProxyDialsOnlyTCP(t *testing.T) {
	s := selectorOf(t, prometheus.NewRegistry(), `{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"http://127.66.77.88"}}}`)
	for network, want := range map[string]string{
		"udp":  "proxies support only TCP, not udp",
		"unix": "proxies support only TCP",
		"tcp":  `dialing proxy "127.66.77.88:http" failed`,
		"tcp4": `dialing proxy "127.66.77.88:http" failed`,
	} {
		_, err := s.DialerFor(egress.Cluster)(t.Context(), network, "10.0.0.1:80")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("dial of %s: got %v, want an error that contains %q", network, err, want)
		}
	}
}

// TestReadRejectsLongFile checks that Read accepts files of at most 1 MiB.
func TestReadRejectsLongFile(t *testing.T) {
	const text = `{"apiVersion":"apiserver.k8s.io/v1beta1","kind":"EgressSelectorConfiguration"}`
	for size, long := range map[int]bool{1 << 20: false, 1<<20 + 1: true} {
		_, err := egress.Read(writeConfigFile(t, text+strings.Repeat(" ", size-len(text))))
		if got := err != nil && strings.Contains(err.Error(), "the file is too long"); got != long || !long && err != nil {
			t.Errorf("Read of %d bytes = %v, want rejected: %t", size, err, long)
		}
	}
}

// TestDeepCopyIsIndependent checks that changes of a copy do not change the original.
func TestDeepCopyIsIndependent(t *testing.T) {
	newConfiguration := func() *egress.Configuration {
		return &egress.Configuration{EgressSelections: []egress.Selection{
			{
				Name: "cluster",
				Connection: egress.Connection{
					ProxyProtocol: egress.HTTPConnect,
					Transport:     &egress.Transport{TCP: &egress.TCPTransport{URL: "u", TLSConfig: &egress.TLSConfig{CABundle: "ca"}}},
				},
			},
			{
				Name: "etcd",
				Connection: egress.Connection{
					ProxyProtocol: egress.GRPC,
					Transport:     &egress.Transport{UDS: &egress.UDSTransport{UDSName: "s"}},
				},
			},
			{
				Name: "controlplane",
				Connection: egress.Connection{
					ProxyProtocol: egress.HTTPConnect,
					Transport:     &egress.Transport{TCP: &egress.TCPTransport{URL: "v"}},
				},
			},
			{Name: "direct", Connection: egress.Connection{ProxyProtocol: egress.Direct}},
		}}
	}
	first := newConfiguration()
	second, ok := first.DeepCopyObject().(*egress.Configuration)
	if !ok || !reflect.DeepEqual(second, newConfiguration()) {
		t.Fatalf("DeepCopyObject = %v, want %v", second, newConfiguration())
	}
	all := second.EgressSelections
	all[0].Connection.Transport.TCP.TLSConfig.CABundle = "x"
	all[0].Connection.Transport.TCP.URL = "x"
	all[1].Connection.Transport.UDS.UDSName = "x"
	all[2].Name = "x"
	all[3].Name = "x"
	if !reflect.DeepEqual(first, newConfiguration()) {
		t.Error("change of the copy: got the original changed, want it unchanged")
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

// TestCABundleIsOptional checks that a configuration without a CA bundle, which uses the CAs of the
// operating system, is valid.
func TestCABundleIsOptional(t *testing.T) {
	cert, key := egresstest.WriteCertificate(t)
	selectorOf(t, prometheus.NewRegistry(),
		fmt.Sprintf(`{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"https://127.0.0.1:1","tlsConfig":{"clientCert":%q,"clientKey":%q}}}}`,
			cert, key))
}

// TestWriteDeadlineClosesTunnel checks that the tunnel is closed when its write deadline passes,
// and not by a deadline that is removed or lies in the past.
func TestWriteDeadlineClosesTunnel(t *testing.T) {
	p := &egresstest.Proxy{}
	p.Forward("far.invalid:7", startEcho(t, false))
	l, path := egresstest.Socket(t)
	p.ServeGRPC(t, l)
	selector := selectorOf(t, prometheus.NewRegistry(), fmt.Sprintf(`{"proxyProtocol":"GRPC","transport":{"uds":{"udsName":%q}}}`, path))
	selector.SetCloseTimeout(10 * time.Millisecond)
	dial := func() net.Conn {
		conn, err := selector.DialerFor(egress.Cluster)(t.Context(), "tcp", "far.invalid:7")
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
	removed, past, passing := dial(), dial(), dial()
	deadline(removed, time.Now().Add(time.Second))
	deadline(removed, time.Time{})
	deadline(past, time.Unix(1, 0))
	deadline(passing, time.Now().Add(time.Second))
	if n, err := passing.Read(make([]byte, 1)); err == nil {
		t.Errorf("read after the deadline: got %d bytes, want an error", n)
	}
	for name, conn := range map[string]net.Conn{"removed": removed, "in the past": past} {
		echoed := make([]byte, 5)
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if _, err := io.ReadFull(conn, echoed); err != nil || string(echoed) != "hello" {
			t.Errorf("%s: got %q, %v, want hello", name, echoed, err)
		}
	}
}
