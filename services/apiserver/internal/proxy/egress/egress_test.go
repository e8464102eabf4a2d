package egress_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/egress/egresstest"
)

// selectorOf returns a Selector with one proxied network.
func selectorOf(t *testing.T, r prometheus.Registerer, connection string) *egress.Selector {
	t.Helper()
	c, err := egress.Read(writeConfigFile(t,
		fmt.Sprintf(`{"apiVersion":"apiserver.k8s.io/v1beta1","kind":"EgressSelectorConfiguration","egressSelections":[{"name":"Cluster","connection":%s},{"name":"etcd","connection":{"proxyProtocol":"Direct"}}]}`,
			connection)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := egress.New(c, r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// writeConfigFile writes text to a configuration file.
func writeConfigFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "egress.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startEcho starts an echo server, which first sends a greeting if greets is set.
func startEcho(t *testing.T, greets bool) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if greets {
					_, _ = io.WriteString(conn, "hello\n")
				}
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// proxyTransports returns the kinds of proxies. Each function starts one and returns its configuration
// and metric labels.
func proxyTransports() map[string]func(*testing.T, *egresstest.Proxy) (connection string, labels []string) {
	return map[string]func(*testing.T, *egresstest.Proxy) (string, []string){
		"CONNECT at a socket": func(t *testing.T, p *egresstest.Proxy) (string, []string) {
			l, path := egresstest.Socket(t)
			p.Connect(t, l)
			return fmt.Sprintf(`{"proxyProtocol":"HTTPConnect","transport":{"uds":{"udsName":%q}}}`, path), []string{"http_connect", "uds"}
		},
		"CONNECT with TLS": func(t *testing.T, p *egresstest.Proxy) (string, []string) {
			cert, key := egresstest.WriteCertificate(t)
			l := egresstest.ListenTLS(t, cert, key)
			p.Connect(t, l)
			return fmt.Sprintf(`{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"https://%s","tlsConfig":{"caBundle":%q,"clientCert":%q,"clientKey":%q}}}}`,
				l.Addr(), cert, cert, key), []string{"http_connect", "tcp"}
		},
		"CONNECT without TLS": func(t *testing.T, p *egresstest.Proxy) (string, []string) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p.Connect(t, l)
			return fmt.Sprintf(`{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"http://%s"}}}`,
				l.Addr()), []string{"http_connect", "tcp"}
		},
		"gRPC": func(t *testing.T, p *egresstest.Proxy) (string, []string) {
			l, path := egresstest.Socket(t)
			p.ServeGRPC(t, l)
			return fmt.Sprintf(`{"proxyProtocol":"GRPC","transport":{"uds":{"udsName":%q}}}`, path), []string{"grpc", "uds"}
		},
	}
}

// wantDialError dials an address in the network of the cluster. The error must contain all wanted
// texts.
func wantDialError(t *testing.T, s *egress.Selector, addr string, want ...string) {
	t.Helper()
	_, err := s.DialerFor(egress.Cluster)(t.Context(), "tcp", addr)
	for _, text := range want {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("dial of %s: got %v, want an error that contains %q", addr, err, text)
		}
	}
}

// TestDialThroughProxy checks connections, errors and metrics of dials through each kind of proxy.
func TestDialThroughProxy(t *testing.T) {
	for name, serve := range proxyTransports() {
		t.Run(name, func(t *testing.T) {
			proxy := &egresstest.Proxy{}
			// gRPC tunnels may lose data that the server sends before the client.
			greets := name != "gRPC"
			proxy.Forward("far.invalid:7", startEcho(t, greets))
			connection, labels := serve(t, proxy)
			reg := prometheus.NewRegistry()
			selector := selectorOf(t, reg, connection)
			if selector.DialerFor(egress.Etcd) != nil || selector.DialerFor(egress.ControlPlane) != nil {
				t.Error("DialerFor returned a proxy for a direct network, want nil")
			}
			ctx, cancel := context.WithCancel(t.Context())
			conn, err := selector.DialerFor(egress.Cluster)(ctx, "tcp", "far.invalid:7")
			if err != nil {
				t.Fatal(err)
			}
			cancel() // bounds only the dial
			read := bufio.NewReader(conn)
			if greets {
				if line, err := read.ReadString('\n'); line != "hello\n" || err != nil {
					t.Errorf("ReadString: got %q, %v, want %q", line, err, "hello\n")
				}
			}
			if _, err := io.WriteString(conn, "again\n"); err != nil {
				t.Error(err)
			}
			if line, err := read.ReadString('\n'); line != "again\n" || err != nil {
				t.Errorf("ReadString: got %q, %v, want %q", line, err, "again\n")
			}
			if conn.RemoteAddr() == nil || conn.LocalAddr() == nil {
				t.Errorf("got addresses %v, %v, want both", conn.RemoteAddr(), conn.LocalAddr())
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			wantDialError(t, selector, "absent.invalid:1", "proxy error from ", "while dialing absent.invalid:1")
			if requested := proxy.RequestedAddresses(); !slices.Equal(requested, []string{"absent.invalid:1", "far.invalid:7"}) {
				t.Errorf("got connections to %v, want absent.invalid:1 and far.invalid:7", requested)
			}
			label := fmt.Sprintf("protocol=%q", labels[0])
			want := fmt.Sprintf(`# HELP apiserver_egress_dialer_dial_failure_count [ALPHA] Failed connections through a proxy, by its protocol, transport and stage: connect for the connection to the proxy, proxy for its response.
# TYPE apiserver_egress_dialer_dial_failure_count counter
apiserver_egress_dialer_dial_failure_count{%[1]s,stage="proxy",transport=%[2]q} 1
# HELP apiserver_egress_dialer_dial_start_total [ALPHA] Connections started through a proxy, by its protocol (http_connect or grpc) and transport (tcp or uds).
# TYPE apiserver_egress_dialer_dial_start_total counter
apiserver_egress_dialer_dial_start_total{%[1]s,transport=%[2]q} 2
`, label, labels[1])
			err = testutil.GatherAndCompare(reg, strings.NewReader(want),
				"apiserver_egress_dialer_dial_failure_count", "apiserver_egress_dialer_dial_start_total")
			if err != nil {
				t.Error(err)
			}
			if n, err := testutil.GatherAndCount(reg, "apiserver_egress_dialer_dial_duration_seconds"); n != 1 || err != nil {
				t.Errorf("got %d series of durations, %v, want 1", n, err)
			}
		})
	}
}

// TestDialThroughMissingProxyFails checks that a failed connection to the proxy is counted in its
// own stage.
func TestDialThroughMissingProxyFails(t *testing.T) {
	for name, connection := range map[string]string{
		"http_connect": `{"proxyProtocol":"HTTPConnect","transport":{"uds":{"udsName":"/no/such"}}}`,
		"grpc":         `{"proxyProtocol":"GRPC","transport":{"uds":{"udsName":"/no/such"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			wantDialError(t, selectorOf(t, reg, connection), "far.invalid:7", `dialing proxy "/no/such" failed`)
			want := fmt.Sprintf(`# HELP apiserver_egress_dialer_dial_failure_count [ALPHA] Failed connections through a proxy, by its protocol, transport and stage: connect for the connection to the proxy, proxy for its response.
# TYPE apiserver_egress_dialer_dial_failure_count counter
apiserver_egress_dialer_dial_failure_count{protocol=%q,stage="connect",transport="uds"} 1
`, name)
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "apiserver_egress_dialer_dial_failure_count"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDialOfSilentProxyEndsWithContext checks that a dial ends with its context.
func TestDialOfSilentProxyEndsWithContext(t *testing.T) {
	listener, path := egresstest.Socket(t)
	t.Cleanup(func() { _ = listener.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = bufio.NewReader(conn).ReadString('\n') // the request has arrived
		cancel()
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}()
	selector := selectorOf(t, prometheus.NewRegistry(), fmt.Sprintf(`{"proxyProtocol":"HTTPConnect","transport":{"uds":{"udsName":%q}}}`, path))
	if _, err := selector.DialerFor(egress.Cluster)(ctx, "tcp", "far.invalid:7"); !errors.Is(err, context.Canceled) {
		t.Errorf("dial: got %v, want %v", err, context.Canceled)
	}
}

// TestDataAfterConnectHeadersBelongsToServer checks that data after the headers belongs to the server, whatever
// the headers say.
func TestDataAfterConnectHeadersBelongsToServer(t *testing.T) {
	for _, header := range []string{"Transfer-Encoding: chunked", "Content-Length: 9"} {
		listener, path := egresstest.Socket(t)
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			read := bufio.NewReader(conn)
			if _, err := http.ReadRequest(read); err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+header+"\r\n\r\n")
			_, _ = io.Copy(conn, read) // the server waits for data
		}()
		selector := selectorOf(t, prometheus.NewRegistry(), fmt.Sprintf(`{"proxyProtocol":"HTTPConnect","transport":{"uds":{"udsName":%q}}}`, path))
		conn, err := selector.DialerFor(egress.Cluster)(t.Context(), "tcp", "far.invalid:7")
		if err != nil {
			t.Fatalf("%s: %v", header, err)
		}
		defer conn.Close()
		echo := make([]byte, 5)
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, echo); err != nil || string(echo) != "hello" {
			t.Errorf("%s: read %q, %v, want hello", header, echo, err)
		}
	}
}

// TestInvalidAddressIsNotSent checks that an address cannot inject lines into the CONNECT request.
func TestInvalidAddressIsNotSent(t *testing.T) {
	selector := selectorOf(t, prometheus.NewRegistry(), `{"proxyProtocol":"HTTPConnect","transport":{"uds":{"udsName":"/nowhere.sock"}}}`)
	for _, addr := range []string{"a b:7", "a\r\nX: y:7", "a\x00:7", "a\x7f:7"} {
		var invalid *net.AddrError
		if _, err := selector.DialerFor(egress.Cluster)(t.Context(), "tcp", addr); !errors.As(err, &invalid) {
			t.Errorf("dial of %q: got %v, want a *net.AddrError", addr, err)
		}
	}
}

// TestBlockedTunnelCanBeClosed checks that Close ends a blocked write.
func TestBlockedTunnelCanBeClosed(t *testing.T) {
	proxy := &egresstest.Proxy{StopReading: true}
	listener, path := egresstest.Socket(t)
	proxy.ServeGRPC(t, listener)
	selector := selectorOf(t, prometheus.NewRegistry(), fmt.Sprintf(`{"proxyProtocol":"GRPC","transport":{"uds":{"udsName":%q}}}`, path))
	selector.SetCloseTimeout(10 * time.Millisecond)
	conn, err := selector.DialerFor(egress.Cluster)(t.Context(), "tcp", "far.invalid:7")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for chunk := make([]byte, 64<<10); ; {
			if _, err := conn.Write(chunk); err != nil {
				return
			}
		}
	}()
	_ = conn.Close()
	<-ended
}

// TestProxyCertificateIsVerified checks that a proxy with a certificate of another CA receives no
// request.
func TestProxyCertificateIsVerified(t *testing.T) {
	cert, key := egresstest.WriteCertificate(t)
	otherCA, _ := egresstest.WriteCertificate(t)
	proxy := &egresstest.Proxy{}
	listener := egresstest.ListenTLS(t, cert, key)
	proxy.Connect(t, listener)
	s := selectorOf(t, prometheus.NewRegistry(),
		fmt.Sprintf(`{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"https://%s","tlsConfig":{"caBundle":%q,"clientCert":%q,"clientKey":%q}}}}`,
			listener.Addr(), otherCA, cert, key))
	wantDialError(t, s, "far.invalid:7", "x509")
	if requested := proxy.RequestedAddresses(); len(requested) != 0 {
		t.Errorf("got connections to %v, want none", requested)
	}
}

// TestReadRejectsInvalidFiles checks the errors of Read, which have the wording of Kubernetes.
func TestReadRejectsInvalidFiles(t *testing.T) {
	const head = `{"apiVersion":"apiserver.k8s.io/v1beta1","kind":"EgressSelectorConfiguration","egressSelections":[`
	oneSelection := func(connection string) string { return head + `{"name":"cluster","connection":` + connection + `}]}` }
	existingFile := writeConfigFile(t, "x")
	for _, test := range []struct{ name, text, want string }{
		{name: "empty file", want: "Object 'Kind' is missing"},
		{
			name: "unsupported kind",
			text: `{"apiVersion":"apiserver.k8s.io/v1beta1","kind":"Other"}`,
			want: `no kind "Other" is registered for version "apiserver.k8s.io/v1beta1"`,
		},
		{
			name: "unsupported version",
			text: `{"apiVersion":"apiserver.k8s.io/v1","kind":"EgressSelectorConfiguration"}`,
			want: `no kind "EgressSelectorConfiguration" is registered for version "apiserver.k8s.io/v1"`,
		},
		{
			name: "unknown field",
			text: head + `{"name":"cluster","connection":{"proxyProtocol":"Direct","odd":1}}]}`,
			want: `strict decoding error: unknown field "egressSelections[0].connection.odd"`,
		},
		{
			name: "no protocol",
			text: oneSelection(`{}`),
			want: `service.connection.protocol: Unsupported value: "": supported values: "Direct", "HTTPConnect", "GRPC"`,
		},
		{
			name: "direct connection with a transport",
			text: oneSelection(`{"proxyProtocol":"Direct","transport":{}}`),
			want: `service.connection.transport: Invalid value: "direct": Transport config should be absent for direct connect`,
		},
		{
			name: "no transport",
			text: oneSelection(`{"proxyProtocol":"HTTPConnect"}`),
			want: "service.connection.transport: Required value: transport must be set for HTTPConnect",
		},
		{
			name: "empty transport",
			text: oneSelection(`{"proxyProtocol":"HTTPConnect","transport":{}}`),
			want: "service.connection.tcp: Required value: One of TCP or UDS must be set",
		},
		{
			name: "TCP and UDS",
			text: oneSelection(`{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"u"},"uds":{"udsName":"s"}}}`),
			want: "TCP and UDS cannot both be set",
		},
		{
			name: "gRPC without a transport",
			text: oneSelection(`{"proxyProtocol":"GRPC"}`),
			want: "service.connection.transport: Required value: transport must be set for GRPC",
		},
		{
			name: "gRPC over TCP",
			text: oneSelection(`{"proxyProtocol":"GRPC","transport":{"tcp":{"url":"https://a"}}}`),
			want: "service.connection.uds: Required value: UDS must be set with GRPC",
		},
		{
			name: "UDS without a socket name",
			text: oneSelection(`{"proxyProtocol":"GRPC","transport":{"uds":{}}}`),
			want: `service.connection.udsName: Invalid value: "nil": UDSName should be present for UDS connections`,
		},
		{
			name: "unsupported scheme",
			text: oneSelection(`{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"ftp://a"}}}`),
			want: `service.connection.url: Invalid value: "ftp://a": supported connection protocols are http:// and https://`,
		},
		{
			name: "TLS over HTTP",
			text: oneSelection(`{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"http://a","tlsConfig":{}}}}`),
			want: "TLSConfig config should not be present when using HTTP",
		},
		{
			name: "HTTPS without TLS",
			text: oneSelection(`{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"https://a"}}}`),
			want: "service.connection.tlsConfig: Required value: TLSConfig must be present when using HTTPS",
		},
		{
			name: "no client certificate",
			text: oneSelection(`{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"https://a","tlsConfig":{"caBundle":"/no/such"}}}}`),
			want: `[service.connection.tlsConfig.caBundle: Invalid value: "/no/such": TLS config ca bundle does not exist, service.connection.tlsConfig.clientCert: Invalid value: "nil": Using TLS requires clientCert, service.connection.tlsConfig.clientKey: Invalid value: "nil": Using TLS requires clientKey]`,
		},
		{
			name: "missing certificate files",
			text: oneSelection(fmt.Sprintf(`{"proxyProtocol":"HTTPConnect","transport":{"tcp":{"url":"https://a","tlsConfig":{"caBundle":%q,"clientCert":"/no/a","clientKey":"/no/b"}}}}`,
				existingFile)),
			want: `[service.connection.tlsConfig.clientCert: Invalid value: "/no/a": TLS client cert does not exist, service.connection.tlsConfig.clientKey: Invalid value: "/no/b": TLS client key does not exist]`,
		},
		{
			name: "unsupported network",
			text: head + `{"name":"Master","connection":{"proxyProtocol":"Direct"}}]}`,
			want: `service.connection: Unsupported value: "master": supported values: "cluster", "controlplane", "etcd"`,
		},
		{
			name: "duplicate network",
			text: head +
				`{"name":"etcd","connection":{"proxyProtocol":"Direct"}},{"name":"ETCD","connection":{"proxyProtocol":"Direct"}}]}`,
			want: `service.connection[1]: Duplicate value: "etcd"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := egress.Read(writeConfigFile(t, test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Read = %v, want an error that contains %q", err, test.want)
			}
		})
	}
	want := `unable to read egress selector configuration from "/no/such" [open /no/such: no such file or directory]`
	if _, err := egress.Read("/no/such"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Read of a missing file = %v, want an error that contains %q", err, want)
	}
}
