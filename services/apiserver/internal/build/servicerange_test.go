package build

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestServiceRangeCanChange follows the steps that Kubernetes documents for another service range:
// the default ServiceCIDR and the service kubernetes are deleted, and a server starts with the new
// range. No server runs when the service is deleted, so that none creates it again.
func TestServiceRangeCanChange(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	const cidr, service = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes", "/api/v1/namespaces/default/services/kubernetes"
	etcd := etcdtest.ListeningServer(t)
	with := func(ranges string) *testServer {
		return startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{etcd.Endpoint()}
			options.Services.ClusterIPRange = ranges
		})
	}
	api := with("10.0.0.0/24")
	api.mustSend(200, "DELETE", cidr, "")
	api.stop()
	store := etcdtest.NewStore(t, etcd.Config())
	const key = "/registry/services/specs/default/kubernetes"
	stored, _, err := store.Get(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Delete(t.Context(), key, stored.ModRevision); err != nil {
		t.Fatal(err)
	}
	api = with("10.7.0.0/24,fd07::/112")
	api.waitUntil("in the new range", func() bool {
		response := api.get(cidr)
		return fmt.Sprint(response.field("spec", "cidrs")) == "[10.7.0.0/24 fd07::/112]" && strings.Contains(string(response.body), `"Ready"`) &&
			api.get(service).field("spec", "clusterIP") == "10.7.0.1"
	})
}
