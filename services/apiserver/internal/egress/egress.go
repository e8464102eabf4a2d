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

// Network is where connections go to.
type Network string

// The networks.
const (
	// ControlPlane has the services that the server asks by its own configuration, and
	// webhooks that objects name by a URL.
	ControlPlane Network = "controlplane"
	// Etcd has etcd.
	Etcd Network = "etcd"
	// Cluster has nodes, pods and services.
	Cluster Network = "cluster"
)

func (s *Selection) network() Network { return Network(strings.ToLower(s.Name)) }

// dialTimeout bounds a connection through a proxy whose context does not.
const dialTimeout = 30 * time.Second

// Dial connects to host:port.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// Selector knows the way into each network. It is immutable; a nil one has no proxies.
type Selector struct{ ways map[Network]*way }

// New makes the ways of a configuration that is valid. The proxies need not be there.
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

// To connects into a network; nil when no proxy stands before it.
func (s *Selector) To(n Network) Dial {
	if s == nil || s.ways[n] == nil {
		return nil
	}
	return s.ways[n].dial
}

// proxy leads somewhere else, in two steps that fail apart.
type proxy interface {
	// connect reaches the proxy, which is asked through what is returned.
	connect(ctx context.Context) (passage, error)
}

// passage is a connection to a proxy that has not been asked yet.
type passage interface {
	// through asks for a connection to addr. After an error the passage is closed.
	through(ctx context.Context, addr string) (net.Conn, error)
}

// way is one that is measured.
type way struct {
	proxy   proxy
	labels  []string // protocol, transport
	metrics *metrics
}

func (w *way) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, errors.New("a proxy leads to TCP alone, not to " + network)
	}
	if strings.ContainsFunc(addr, func(r rune) bool { return r <= ' ' || r == 0x7f }) { // a proxy is told of it in a line
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
