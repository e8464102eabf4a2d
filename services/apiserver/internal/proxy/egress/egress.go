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
type Selector struct{ ways map[Network]*way }

// New returns a Selector for a valid configuration. It does not connect to the proxies.
func New(c *Configuration, r prometheus.Registerer) (*Selector, error) {
	m, err := newMetrics(r)
	if err != nil {
		return nil, err
	}
	out := &Selector{ways: map[Network]*way{}}
	for i := range c.EgressSelections {
		s := &c.EgressSelections[i]
		w := &way{metrics: m}
		switch t := s.Connection.Transport; {
		case s.Connection.ProxyProtocol == GRPC:
			w.proxy = &konnectivity{socket: t.UDS.UDSName}
			w.labels = []string{"grpc", "uds"}
			exposeTunnels(r)
		case s.Connection.ProxyProtocol == HTTPConnect && t.UDS != nil:
			w.proxy = newSocketConnector(t.UDS.UDSName)
			w.labels = []string{"http_connect", "uds"}
		case s.Connection.ProxyProtocol == HTTPConnect:
			if w.proxy, err = newConnector(t.TCP); err != nil {
				return nil, fmt.Errorf("egress selection %s: %w", s.Name, err)
			}
			w.labels = []string{"http_connect", "tcp"}
		default:
			continue
		}
		out.ways[s.network()] = w
	}
	return out, nil
}

// To returns the dial function for a network, or nil if the network has no proxy.
func (s *Selector) To(n Network) Dial {
	if s == nil || s.ways[n] == nil {
		return nil
	}
	return s.ways[n].dial
}

// proxy opens connections in two steps that can fail separately.
type proxy interface {
	// connect connects to the proxy. The passage then requests a connection.
	connect(ctx context.Context) (passage, error)
}

// passage is a connection to a proxy before the first request.
type passage interface {
	// through requests a connection to addr. After an error the passage is closed.
	through(ctx context.Context, addr string) (net.Conn, error)
}

// way is a proxy with metrics.
type way struct {
	proxy   proxy
	labels  []string // protocol, transport
	metrics *metrics
}

func (w *way) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, errors.New("a proxy leads to TCP alone, not to " + network)
	}
	if strings.ContainsFunc(addr, func(r rune) bool { return r <= ' ' || r == 0x7f }) { // the address becomes part of a line
		return nil, &net.AddrError{Err: "not an address", Addr: strconv.Quote(addr)}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	start := time.Now()
	w.metrics.starts.WithLabelValues(w.labels...).Inc()
	p, err := w.proxy.connect(ctx)
	if err != nil {
		w.failed("connect")
		return nil, err
	}
	conn, err := p.through(ctx, addr)
	if err != nil {
		w.failed("proxy")
		return nil, err
	}
	w.metrics.took.WithLabelValues(w.labels...).Observe(time.Since(start).Seconds())
	return conn, nil
}

func (w *way) failed(stage string) {
	w.metrics.failures.WithLabelValues(append(w.labels[:2:2], stage)...).Inc()
}
