package build

import (
	"context"
	"net"

	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// clusterDial returns the dialer for services of the cluster; nil dials directly. This server is
// such a service, and dials itself directly, because the proxy may not reach it.
func (p *parts) clusterDial() webhookclient.Dial {
	dial := p.egress.To(egress.Cluster)
	if dial == nil {
		return nil
	}
	self := p.base.address
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == self {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
		return dial(ctx, network, addr)
	}
}

// webhookDialers returns the dialers for webhooks that API objects name.
func (p *parts) webhookDialers() webhookclient.Dialers {
	return webhookclient.Dialers{Cluster: p.clusterDial(), URLs: p.egress.To(egress.ControlPlane)}
}
