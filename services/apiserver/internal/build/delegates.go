package build

import (
	"context"
	"crypto/tls"
	"net/http"

	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/peers"
)

// delegates are the servers that answer requests that this server does not serve.
type delegates struct {
	client          *internalclient.Client
	proxyClientCert *tlsfiles.Pair // nil if not configured
	extensions      *aggregation.Aggregator
	// presence publishes the address of this replica; peers proxies requests to other replicas.
	// Both are nil if they are disabled.
	presence *peers.Presence
	peers    *peers.Peers
}

// newDelegates creates the connections to extension servers and peers. enter acquires a slot for a
// proxied request.
func newDelegates(b *base, o *config.Options, k *caches, s *stores, sets *apiSets, n *network, enter func(*http.Request) (func(), error)) (*delegates, error) {
	d := &delegates{client: sets.client}
	var err error
	if d.proxyClientCert, err = loadProxyClient(&o.Aggregation); err != nil {
		return nil, err
	}
	if d.proxyClientCert != nil {
		b.life.whileServing("certificate for extension servers and peers", func(ctx context.Context) error {
			return tlsfiles.Watch(ctx, b.log, d.proxyClientCert)
		})
	}
	d.newExtensions(b, o, k, sets.kinds, n, enter)
	return d, d.newPeers(b, o, k, s, sets.respond.Error)
}

// certificate returns the client certificate for extension servers and peers; nil if there is none.
func (d *delegates) certificate() *tls.Certificate {
	if d.proxyClientCert == nil {
		return nil
	}
	return d.proxyClientCert.Certificate()
}

// foreign returns the delegates for requests that this server does not serve.
func (d *delegates) foreign() server.Delegates {
	return server.Delegates{Extension: d.extensions.Handler, Peer: d.peer}
}

// peer returns a handler that proxies a request to a replica that serves its resource; nil if there
// is none.
func (d *delegates) peer(r *http.Request, op *requestinfo.Info) http.Handler {
	if d.peers == nil {
		return nil
	}
	return d.peers.Handler(r, op)
}
