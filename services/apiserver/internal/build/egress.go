package build

import (
	"context"
	"fmt"
	"net"

	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// buildEgress reads the egress configuration before anything connects.
func (p *parts) buildEgress(context.Context) error {
	file := p.options.Compatibility.EgressSelector
	if file == "" {
		return nil
	}
	c, err := egress.Read(file)
	if err != nil {
		return err
	}
	if p.egress, err = egress.New(c, p.metrics); err != nil {
		return fmt.Errorf("failed to setup egress selector: %w", err)
	}
	return nil
}

// clusterDial returns the dialer for services of the cluster; nil dials directly. This server is
// such a service, and dials itself directly, because the proxy may not reach it.
func (p *parts) clusterDial() webhookclient.Dial {
	dial := p.egress.To(egress.Cluster)
	if dial == nil {
		return nil
	}
	self := p.address()
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
