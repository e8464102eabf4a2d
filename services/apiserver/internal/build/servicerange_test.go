package build

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// TestServiceRangeChanges follows the steps that Kubernetes documents for another service range:
// the default ServiceCIDR is deleted, a server starts with the new range, and the service
// kubernetes is deleted.
func TestServiceRangeChanges(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	const cidr, service = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes", "/api/v1/namespaces/default/services/kubernetes"
	etcd := onEtcd(t)
	with := func(ranges string) *api {
		return start(t, func(o *config.Options) {
			etcd(o)
			o.Services.ClusterIPRange = ranges
		})
	}
	a := with("10.0.0.0/24")
	a.want(200, "DELETE", cidr, "")
	a.stop()
	a = with("10.7.0.0/24,fd07::/112")
	a.want(200, "DELETE", service, "")
	a.eventually("in the new range", func() bool {
		r := a.get(cidr)
		return fmt.Sprint(r.at("spec", "cidrs")) == "[10.7.0.0/24 fd07::/112]" && strings.Contains(string(r.body), `"Ready"`) &&
			a.get(service).at("spec", "clusterIP") == "10.7.0.1"
	})
}
