package build

import (
	"context"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// network reaches webhooks and services of the cluster.
type network struct {
	services *webhookclient.Services
	dialers  webhookclient.Dialers
}

// newNetwork takes the handler of this server, which is created later, because webhooks may be
// services of this server.
func newNetwork(b *base, k *caches, aggregatorRouting bool, handler func() http.Handler) *network {
	o := &lister.Objects{Cache: k.cache}
	services := k.core("services")
	s := &webhookclient.Services{Self: b.address, Internal: internalclient.Transport{Handler: handler}, Get: func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
		return lister.Get[*corev1.Service](ctx, o, &services, namespace, name)
	}}
	if aggregatorRouting {
		endpoints := k.core("endpoints")
		s.Endpoints = func(ctx context.Context, namespace, name string) (*corev1.Endpoints, error) {
			return lister.Get[*corev1.Endpoints](ctx, o, &endpoints, namespace, name)
		}
	}
	return &network{services: s, dialers: webhookclient.Dialers{Cluster: clusterDial(b), URLs: b.egress.To(egress.ControlPlane)}}
}

// clusterDial returns the dialer for services of the cluster; nil dials directly. This server is
// such a service, and dials itself directly, because the proxy may not reach it.
func clusterDial(b *base) webhookclient.Dial {
	dial := b.egress.To(egress.Cluster)
	if dial == nil {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == b.address {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
		return dial(ctx, network, addr)
	}
}
