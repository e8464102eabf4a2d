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

	"binnacle/services/apiserver/internal/carry"
	"binnacle/services/apiserver/internal/connections"
)

// probeWithin bounds how long it is waited for a sign of life.
const probeWithin = 5 * time.Second

// serverName is what the certificates of all replicas say, wherever they are.
const serverName = "kubernetes.default.svc"

var errNobody = errors.New("none of the replicas that serve it is there")

// peer is another replica.
type peer struct {
	id, address string
	trusted     *x509.CertPool
	way         *carry.Way
	connections *connections.Pool
	retire      context.CancelFunc
}

func newPeer(p *Peers, id, address string, trusted *x509.CertPool) *peer {
	dialer := &net.Dialer{Timeout: carry.DialTimeout}
	security := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName, RootCAs: trusted}
	is := &peer{id: id, address: address, trusted: trusted, connections: carry.Connections(dialer.DialContext, security, p.Certificate)}
	life, retire := context.WithCancel(p.living)
	is.retire = retire
	is.way = &carry.Way{
		Locate: func(_ context.Context, path string) (*url.URL, error) {
			return &url.URL{Scheme: "https", Host: address, Path: path}, nil
		},
		Connections: is.connections, Pages: p.pages,
		Breaker: carry.NewBreaker(life, &p.probes, carry.BreakerConfig{Probe: is.live, Most: p.MaxRequests, Turned: func(reason error) {
			if reason != nil {
				p.Logger.Error("a peer is not asked until it answers again", "peer", id, "address", address, "error", reason)
			} else {
				p.Logger.Info("a peer answers again", "peer", id, "address", address)
			}
		}}),
		Traces: p.Traces, Logger: p.Logger, Name: id,
	}
	return is
}

// live tells whether the peer answers anything at all.
func (p *peer) live(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.address+"/livez", nil)
	if err != nil {
		return err
	}
	resp, err := p.connections.RoundTrip(r)
	if err != nil {
		p.connections.CloseIdleConnections() // the next has a new one
		return err
	}
	return resp.Body.Close()
}

// close ends probes, and lets go of connections that nobody uses.
func (p *peer) close() {
	p.retire()
	p.connections.CloseIdleConnections()
}
