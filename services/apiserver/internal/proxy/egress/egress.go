package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

// Network is a target network of connections.
type Network string

// Networks.
const (
	// ControlPlane contains the services in the server's own configuration, and webhooks that
	// objects name by URL.
	ControlPlane Network = "controlplane"
	// Etcd contains etcd.
	Etcd Network = "etcd"
	// Cluster contains nodes, pods and services.
	Cluster Network = "cluster"
)

func (s *Selection) network() Network { return Network(strings.ToLower(s.Name)) }

// dialTimeout bounds a connection through a proxy.
const dialTimeout = 30 * time.Second

// Dial connects to host:port.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// Selector holds the proxies of networks. It is immutable. A nil Selector has no proxies.
type Selector struct{ dialers map[Network]*dialer }

// New returns a Selector for a valid configuration. It does not connect to the proxies.
func New(configuration *Configuration, registerer prometheus.Registerer) (*Selector, error) {
	registered, err := newMetrics(registerer)
	if err != nil {
		return nil, err
	}
	out := &Selector{dialers: map[Network]*dialer{}}
	for i := range configuration.EgressSelections {
		selection := &configuration.EgressSelections[i]
		created := &dialer{metrics: registered}
		t := selection.Connection.Transport
		switch {
		case selection.Connection.ProxyProtocol == GRPC:
			created.proxy = &konnectivity{socket: t.UDS.UDSName, closeTimeout: client.CloseTimeout}
			created.labels = []string{"grpc", "uds"}
			exposeTunnels(registerer)
		case selection.Connection.ProxyProtocol == HTTPConnect && t.UDS != nil:
			created.proxy = &connectProxy{network: "unix", address: t.UDS.UDSName}
			created.labels = []string{"http_connect", "uds"}
		case selection.Connection.ProxyProtocol == HTTPConnect:
			if created.proxy, err = newConnectProxy(t.TCP); err != nil {
				return nil, fmt.Errorf("egress selection %s: %w", selection.Name, err)
			}
			created.labels = []string{"http_connect", "tcp"}
		default:
			continue
		}
		out.dialers[selection.network()] = created
	}
	return out, nil
}

// DialerFor returns the dial function for a network, or nil if the network has no proxy.
func (s *Selector) DialerFor(n Network) Dial {
	if s == nil || s.dialers[n] == nil {
		return nil
	}
	return s.dialers[n].dialCounted
}

// proxy opens connections in two steps that can fail separately.
type proxy interface {
	// connect connects to the proxy. The proxyConn then requests a connection.
	connect(ctx context.Context) (proxyConn, error)
}

// proxyConn is a connection to a proxy before the first request.
type proxyConn interface {
	// dial requests a connection to addr. After an error the proxyConn is closed.
	dial(ctx context.Context, addr string) (net.Conn, error)
}

// dialer is a proxy with metrics.
type dialer struct {
	proxy   proxy
	labels  []string // protocol, transport
	metrics *metrics
}

// dialCounted connects to addr through the proxy and records the result.
func (d *dialer) dialCounted(ctx context.Context, network, addr string) (net.Conn, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, errors.New("proxies support only TCP, not " + network)
	}
	if strings.ContainsFunc(addr, func(r rune) bool { return r <= ' ' || r == 0x7f }) { // the address becomes part of a line
		return nil, &net.AddrError{Err: "not an address", Addr: strconv.Quote(addr)}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	start := time.Now()
	d.metrics.starts.WithLabelValues(d.labels...).Inc()
	p, err := d.proxy.connect(ctx)
	if err != nil {
		d.countFailure("connect")
		return nil, err
	}
	conn, err := p.dial(ctx, addr)
	if err != nil {
		d.countFailure("proxy")
		return nil, err
	}
	d.metrics.duration.WithLabelValues(d.labels...).Observe(time.Since(start).Seconds())
	return conn, nil
}

// countFailure counts a failed dial. stage is connect or proxy.
func (d *dialer) countFailure(stage string) {
	d.metrics.failures.WithLabelValues(append(d.labels[:2:2], stage)...).Inc()
}
