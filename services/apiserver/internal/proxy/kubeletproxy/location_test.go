package kubeletproxy_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
)

// TestLocationHasPreferredAddressAndPortOfNode checks that the location of a kubelet has the address of
// the first preferred type and the port of the node's status.
func TestLocationHasPreferredAddressAndPortOfNode(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeExternalIP, Address: "192.0.2.9"}, {Type: corev1.NodeInternalIP, Address: "10.1.2.3"},
	}}}
	options := kubeletproxy.NewOptions()
	upstream, err := kubeletproxy.New(options, prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if host, port, err := upstream.Location(node); host != "10.1.2.3" || port != "10250" || err != nil {
		t.Errorf("got %s:%s, %v, want 10.1.2.3:10250", host, port, err)
	}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = 1234
	options.AddressTypes = []string{"ExternalIP"}
	if upstream, err = kubeletproxy.New(options, prometheus.NewRegistry(), nil); err != nil {
		t.Fatal(err)
	}
	if host, port, err := upstream.Location(node); host != "192.0.2.9" || port != "1234" || err != nil {
		t.Errorf("got %s:%s, %v, want 192.0.2.9:1234", host, port, err)
	}
	node.Status.Addresses = nil
	if _, _, err := upstream.Location(node); err == nil || err.Error() != "no preferred addresses found; known addresses: []" {
		t.Errorf("node without addresses: got %v, want no preferred addresses found", err)
	}
	options.CertFile = "x"
	if errs := options.Validate(); len(errs) != 1 {
		t.Errorf("got errors %v, want one", errs)
	}
}

// TestCheckHostAllowsOnlyRoutableAddresses checks that loopback, link-local and unspecified addresses
// are rejected as targets.
func TestCheckHostAllowsOnlyRoutableAddresses(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1":   false,
		"169.254.1.1": false,
		"::1":         false,
		"0.0.0.0":     false,
		"10.0.0.1":    true,
		"localhost":   false,
	} {
		if err := kubeletproxy.CheckHost(t.Context(), host); (err == nil) != want {
			t.Errorf("CheckHost(%s): got %v, want allowed: %t", host, err, want)
		}
	}
}

// TestTargetAddressIsRestricted checks that nothing connects to a target at a loopback, link-local
// or multicast address, however it is written.
func TestTargetAddressIsRestricted(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan string, 1024) // remote addresses
	go func() {
		defer close(accepted)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn.RemoteAddr().String()
			_ = conn.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	upstream, err := kubeletproxy.New(kubeletproxy.NewOptions(), prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	for _, host := range []string{
		"127.0.0.1", "127.9.9.9", "localhost", "::ffff:127.0.0.1",
		"0.0.0.0", "::", "::1", "169.254.169.254", "fe80::1%lo", "224.0.0.1", "255.255.255.255",
	} {
		for _, scheme := range []string{"http", "https"} {
			for _, upgrade := range []string{"", "SPDY/3.1"} {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				if upgrade != "" {
					r.Header.Set("Connection", "Upgrade")
					r.Header.Set("Upgrade", upgrade)
				}
				w := httptest.NewRecorder()
				upstream.Proxy(w, r, kubeletproxy.Target, &url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}, plainErrors{})
				if !strings.Contains(w.Body.String(), "address not allowed") {
					t.Errorf("%s %s %s: got status %d: %s, want %q", scheme, host, upgrade, w.Code, w.Body, "address not allowed")
				}
			}
		}
	}
	// The first accepted connection is that of the test.
	own, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if first := <-accepted; first != own.LocalAddr().String() {
		t.Errorf("first connection came from %s, want %s", first, own.LocalAddr())
	}
	listener.Close()
	for range accepted { // until the listener has stopped
	}
}
