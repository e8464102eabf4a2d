package build

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// TestServiceRangeChanges follows the steps that Kubernetes documents for another service range:
// the default ServiceCIDR and the service kubernetes are deleted, and a server starts with the new
// range. No server runs when the service is deleted, so that none creates it again.
func TestServiceRangeChanges(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	const cidr, service = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes", "/api/v1/namespaces/default/services/kubernetes"
	etcd := etcdtest.ListeningServer(t)
	with := func(ranges string) *api {
		return start(t, func(o *config.Options) {
			o.Etcd.Backend = config.BackendEtcd
			o.Etcd.Servers = []string{etcd.Endpoint()}
			o.Services.ClusterIPRange = ranges
		})
	}
	a := with("10.0.0.0/24")
	a.want(200, "DELETE", cidr, "")
	a.stop()
	store := etcdtest.NewStore(t, etcd.Config())
	const key = "/registry/services/specs/default/kubernetes"
	kv, _, err := store.Get(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Delete(t.Context(), key, kv.ModRevision); err != nil {
		t.Fatal(err)
	}
	a = with("10.7.0.0/24,fd07::/112")
	a.eventually("in the new range", func() bool {
		r := a.get(cidr)
		return fmt.Sprint(r.at("spec", "cidrs")) == "[10.7.0.0/24 fd07::/112]" && strings.Contains(string(r.body), `"Ready"`) &&
			a.get(service).at("spec", "clusterIP") == "10.7.0.1"
	})
}
