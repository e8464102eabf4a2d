package egress

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

// konnectivity connects to a proxy that speaks the gRPC of konnectivity at a Unix domain socket.
// Each connection has its own tunnel, which ends with it. The library may lose data that a server
// sends before its client does. No protocol over TLS does that.
type konnectivity struct{ socket string }

// connect opens a tunnel to the konnectivity server.
func (k *konnectivity) connect(ctx context.Context) (proxyConn, error) {
	dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", k.socket)
	})
	// The context of the tunnel is that of the connection, which outlives the context of the dial.
	tunnelCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, tunnelCtx, "passthrough:///"+k.socket, dial,
		grpc.WithBlock(), grpc.WithReturnConnectionError(), grpc.FailOnNonTempDialError(true), //nolint:staticcheck // what the library calls goes by them
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("dialing proxy %q failed: %w", k.socket, err)
	}
	return &konnectivityTunnel{tunnel, end, k.socket}, nil
}

// konnectivityTunnel is a tunnel for one connection. end closes it.
type konnectivityTunnel struct {
	client.Tunnel
	end   context.CancelFunc
	proxy string
}

// dial connects to a destination through the tunnel.
func (t *konnectivityTunnel) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := t.DialContext(ctx, "tcp", addr)
	if err != nil {
		t.end()
		return nil, fmt.Errorf("proxy error from %s while dialing %s: %w", t.proxy, addr, err)
	}
	return &tunnel{Conn: conn, end: t.end, remote: address(addr)}, nil
}

// tunnel is a connection with its remote address.
type tunnel struct {
	net.Conn
	end    context.CancelFunc
	remote address
	closed sync.Once

	mu   sync.Mutex  // leaf lock
	late *time.Timer // timer of the write deadline
}

// Close implements net.Conn. It does not wait for the proxy to agree.
func (t *tunnel) Close() error {
	t.closed.Do(func() {
		go func() {
			// A blocked write holds the tunnel while the proxy may not read. Only the end of the
			// tunnel frees both.
			late := time.AfterFunc(client.CloseTimeout, t.end)
			defer late.Stop()
			_ = t.Conn.Close() // notifies the proxy if it is reachable
			t.end()
		}()
	})
	return nil
}

// SetWriteDeadline implements net.Conn. TLS uses it for its closing alert. When the deadline
// passes, the tunnel ends, but no sooner than Close would end it. A deadline in the past means that
// nothing more will be written. TLS sets it while it may still read, so it ends nothing.
func (t *tunnel) SetWriteDeadline(at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.late != nil {
		t.late.Stop()
		t.late = nil
	}
	if left := time.Until(at); left > 0 {
		t.late = time.AfterFunc(max(left, client.CloseTimeout), t.end)
	}
	return nil
}

// LocalAddr implements net.Conn.
func (t *tunnel) LocalAddr() net.Addr { return address("konnectivity") }

// RemoteAddr implements net.Conn.
func (t *tunnel) RemoteAddr() net.Addr { return t.remote }

// address is the address of a destination.
type address string

// Network implements net.Addr.
func (address) Network() string { return "tcp" }

// String implements net.Addr.
func (a address) String() string { return string(a) }

// exposeTunnels registers the library's own metrics, which are global to the process.
func exposeTunnels(r prometheus.Registerer) { client.Metrics.RegisterMetrics(r) }
