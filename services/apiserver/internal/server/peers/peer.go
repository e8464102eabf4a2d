package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/proxy/clientcerts"
	"binnacle/services/apiserver/internal/proxy/reverseproxy"
)

// probeTimeout is the timeout of a probe.
const probeTimeout = 5 * time.Second

// serverName is the name that connections to peers verify. The certificates of all replicas contain
// it, so that a replica can have any address.
const serverName = "kubernetes.default.svc"

var errNoReplica = errors.New("no replica that serves the resource is reachable")

// peer is another replica.
type peer struct {
	identity, address string
	trusted           *x509.CertPool
	proxy             *reverseproxy.Proxy
	connections       *clientcerts.Pool
	stopProbes        context.CancelFunc
}

// newPeer returns the peer at an address. trusted holds the CAs that verify its certificate.
func newPeer(peers *Peers, identity, address string, trusted *x509.CertPool) *peer {
	dialer := &net.Dialer{Timeout: reverseproxy.DialTimeout}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName, RootCAs: trusted}
	peer := &peer{
		identity:    identity,
		address:     address,
		trusted:     trusted,
		connections: reverseproxy.Connections(dialer.DialContext, tlsConfig, peers.Certificate),
	}
	probing, stopProbes := context.WithCancel(peers.lifetime)
	peer.stopProbes = stopProbes
	peer.proxy = &reverseproxy.Proxy{
		Locate: func(_ context.Context, path string) (*url.URL, error) {
			return &url.URL{Scheme: "https", Host: address, Path: path}, nil
		},
		Connections: peer.connections,
		Pages:       peers.pages,
		LongRunning: requestinfo.LongRunning,
		Breaker: reverseproxy.NewBreaker(probing, &peers.probes, reverseproxy.BreakerConfig{
			Probe:       peer.probe,
			MaxRequests: peers.MaxRequests,
			OnChange: func(reason error) {
				if reason != nil {
					peers.Logger.Error("peer unreachable; no requests until it responds", "peer", identity, "address", address, "error", reason)
				} else {
					peers.Logger.Info("peer reachable again", "peer", identity, "address", address)
				}
			},
		}),
		Traces: peers.Traces,
		Logger: peers.Logger,
		Name:   identity,
	}
	return peer
}

// probe requests /livez of the peer. Any response counts as success.
func (p *peer) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.address+"/livez", nil)
	if err != nil {
		return err
	}
	resp, err := p.connections.RoundTrip(req)
	if err != nil {
		// The idle connections may be broken too. The next request opens a new one.
		p.connections.CloseIdleConnections()
		return err
	}
	return resp.Body.Close()
}

// close ends probes and closes idle connections.
func (p *peer) close() {
	p.stopProbes()
	p.connections.CloseIdleConnections()
}
