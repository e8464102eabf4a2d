package kubeletproxy_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/request"
)

// newUpstream returns an Upstream that connects with dial.
func newUpstream(t *testing.T, handshake time.Duration, dial kubeletproxy.Dial) *kubeletproxy.Upstream {
	t.Helper()
	o := kubeletproxy.NewOptions()
	o.Timeout = handshake
	up, err := kubeletproxy.New(o, prometheus.NewRegistry(), dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	return up
}

// TestDialEndsWithRequest checks that neither a dial nor a TLS handshake outlives its request.
func TestDialEndsWithRequest(t *testing.T) {
	at := func(scheme string) *url.URL { return &url.URL{Scheme: scheme, Host: "10.9.9.9:1", Path: "/"} }
	for name, send := range map[string]func(ctx context.Context, up *kubeletproxy.Upstream){
		"log": func(ctx context.Context, up *kubeletproxy.Upstream) {
			if log, err := up.Log(ctx, kubeletproxy.Kubelet, at("https"), "p"); err == nil {
				log.Close()
				t.Error("got a log, want an error")
			}
		},
		"proxy": func(ctx context.Context, up *kubeletproxy.Upstream) {
			up.Proxy(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", http.NoBody),
				kubeletproxy.Target, at("http"), plainErrors{})
		},
		"proxy with TLS": func(ctx context.Context, up *kubeletproxy.Upstream) {
			up.Proxy(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", http.NoBody),
				kubeletproxy.Target, at("https"), plainErrors{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, disconnect := context.WithCancel(t.Context())
			ctx, state := request.Derive(ctx)
			state.Lifetime = ctx
			ended := make(chan error, 1)
			up := newUpstream(t, 0, func(dial context.Context, _, _ string) (net.Conn, error) {
				disconnect()
				<-dial.Done()
				ended <- dial.Err()
				return nil, dial.Err()
			})
			send(ctx, up)
			<-ended
		})
		t.Run(name+", handshake", func(t *testing.T) {
			if name == "proxy" {
				t.Skip("no TLS")
			}
			ctx, disconnect := context.WithCancel(t.Context())
			ctx, state := request.Derive(ctx)
			state.Lifetime = ctx
			defer disconnect()
			local, remote := net.Pipe()
			defer remote.Close()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				b := make([]byte, 4096)
				for {
					if _, err := remote.Read(b); err != nil {
						return
					}
					disconnect()
				}
			}()
			send(ctx, newUpstream(t, 0, func(context.Context, string, string) (net.Conn, error) { return local, nil }))
			<-ended
		})
	}
}

// TestSilentHandshakeTimesOut checks that a TLS handshake without a response fails after
// Options.Timeout.
func TestSilentHandshakeTimesOut(t *testing.T) {
	local, remote := net.Pipe()
	defer remote.Close()
	up := newUpstream(t, time.Millisecond, func(context.Context, string, string) (net.Conn, error) { return local, nil })
	_, err := up.Log(t.Context(), kubeletproxy.Kubelet, &url.URL{Scheme: "https", Host: "10.9.9.9:1", Path: "/"}, "p")
	if err == nil || !strings.Contains(err.Error(), "net/http: TLS handshake timeout") {
		t.Errorf("Log = %v, want an error that contains \"net/http: TLS handshake timeout\"", err)
	}
}
