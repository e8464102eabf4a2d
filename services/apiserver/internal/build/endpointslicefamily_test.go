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
			api := startServer(t, func(options *config.Options) {
				options.Etcd.Backend = config.BackendEtcd
				options.Etcd.Servers = []string{etcd.Endpoint()}
				options.AdvertiseAddress = net.ParseIP(test.address)
			})
			api.waitUntil("slice of "+test.family, func() bool {
				s := api.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")
				return s.field("addressType") == test.family
			})
		})
	}
}
