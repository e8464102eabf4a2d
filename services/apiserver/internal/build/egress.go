package build

import (
	"context"
	"fmt"
	"net"

	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// buildEgress finds the ways to other networks, before anything connects.
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

// toCluster leads to services of the cluster; nil goes straight there. This server is one
// of them, and no proxy knows the way back.
func (p *parts) toCluster() webhookclient.Dial {
	through := p.egress.To(egress.Cluster)
	if through == nil {
		return nil
	}
	self := p.address()
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == self {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
		return through(ctx, network, addr)
	}
}

// ways lead to webhooks that objects name.
func (p *parts) ways() webhookclient.Ways {
	return webhookclient.Ways{Cluster: p.toCluster(), URLs: p.egress.To(egress.ControlPlane)}
}
