package build

import (
	"net"
	"testing"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestKubernetesEndpointSliceFollowsIPFamily starts a server with an advertised address of the
// other family, as in a migration of a cluster.
func TestKubernetesEndpointSliceFollowsIPFamily(t *testing.T) {
	etcd := etcdtest.ListeningServer(t)
	for _, test := range []struct{ address, family string }{
		{address: "192.0.2.1", family: "IPv4"},
		{address: "2001:db8::1", family: "IPv6"},
		{address: "192.0.2.1", family: "IPv4"},
	} {
		t.Run(test.family, func(t *testing.T) {
			a := start(t, func(o *config.Options) {
				o.Etcd.Backend = config.BackendEtcd
				o.Etcd.Servers = []string{etcd.Endpoint()}
				o.AdvertiseAddress = net.ParseIP(test.address)
			})
			a.eventually("slice of "+test.family, func() bool {
				s := a.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")
				return s.at("addressType") == test.family
			})
		})
	}
}
