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

// konnectivity connects through a konnectivity server, which speaks gRPC at a Unix domain socket.
// Each connection has its own tunnel, which is closed with the connection.
//
// If the server at the destination sends data before the client does, the konnectivity library may
// lose this data. The API server uses TLS, in which the client always sends first.
type konnectivity struct {
	socket       string        // path of the Unix domain socket
	closeTimeout time.Duration // how long a closed connection may wait for the proxy's agreement
}

// connect opens a tunnel to the konnectivity server.
func (k *konnectivity) connect(ctx context.Context) (proxyConn, error) {
	dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", k.socket)
	})
	// The tunnel lives as long as the connection, but ctx only as long as the dial. Until the
	// tunnel is open, canceling ctx closes it.
	tunnelCtx, closeTunnel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, closeTunnel)
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, tunnelCtx, "passthrough:///"+k.socket, dial,
		grpc.WithBlock(), grpc.WithReturnConnectionError(), grpc.FailOnNonTempDialError(true), //nolint:staticcheck // the library needs the deprecated options
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if !stop() && err == nil { // ctx was canceled after the tunnel was opened, and closed it
		err = context.Cause(ctx)
	}
	if err != nil {
		closeTunnel()
		return nil, fmt.Errorf("dialing proxy %q failed: %w", k.socket, err)
	}
	return &konnectivityTunnel{Tunnel: tunnel, closeTunnel: closeTunnel, closeTimeout: k.closeTimeout, proxy: k.socket}, nil
}

// konnectivityTunnel is a tunnel for one connection, before the connection is opened.
type konnectivityTunnel struct {
	client.Tunnel
	closeTunnel  context.CancelFunc
	closeTimeout time.Duration
	proxy        string // path of the proxy's socket, for errors
}

// dial implements proxyConn. It connects to a destination through the tunnel.
func (t *konnectivityTunnel) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := t.DialContext(ctx, "tcp", addr)
	if err != nil {
		t.closeTunnel()
		return nil, fmt.Errorf("proxy error from %s while dialing %s: %w", t.proxy, addr, err)
	}
	return &tunnelConn{Conn: conn, closeTunnel: t.closeTunnel, closeTimeout: t.closeTimeout, remote: address(addr)}, nil
}

// tunnelConn is a connection through a tunnel, with its remote address.
type tunnelConn struct {
	net.Conn
	closeTunnel  context.CancelFunc
	closeTimeout time.Duration
	remote       address
	closed       sync.Once

	mu       sync.Mutex  // leaf lock
	deadline *time.Timer // closes the tunnel after the write deadline; nil without one
}

// Close implements net.Conn. It does not wait for the proxy to agree.
func (t *tunnelConn) Close() error {
	t.closed.Do(func() {
		go func() {
			// A write blocks while the proxy does not read, and then blocks Close. Closing the
			// tunnel unblocks both.
			timer := time.AfterFunc(t.closeTimeout, t.closeTunnel)
			defer timer.Stop()
			_ = t.Conn.Close() // notifies the proxy if it is reachable
			t.closeTunnel()
		}()
	})
	return nil
}

// SetWriteDeadline implements net.Conn. TLS uses it for its closing alert. The tunnel is closed
// when the deadline passes, but not before closeTimeout. A deadline in the past has no
// effect: TLS sets it when it will not write any more, but may still read.
func (t *tunnelConn) SetWriteDeadline(at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.deadline != nil {
		t.deadline.Stop()
		t.deadline = nil
	}
	if left := time.Until(at); left > 0 {
		t.deadline = time.AfterFunc(max(left, t.closeTimeout), t.closeTunnel)
	}
	return nil
}

// LocalAddr implements net.Conn.
func (t *tunnelConn) LocalAddr() net.Addr { return address("konnectivity") }

// RemoteAddr implements net.Conn.
func (t *tunnelConn) RemoteAddr() net.Addr { return t.remote }

// address is the address of a destination.
type address string

// Network implements net.Addr.
func (address) Network() string { return "tcp" }

// String implements net.Addr.
func (a address) String() string { return string(a) }

// exposeTunnels registers the library's own metrics, which are global to the process.
func exposeTunnels(r prometheus.Registerer) { client.Metrics.RegisterMetrics(r) }
