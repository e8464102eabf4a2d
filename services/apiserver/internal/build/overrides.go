package build

import (
	"slices"
	"strings"

	"binnacle/services/apiserver/internal/config"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// overridePrefixes returns the key prefixes of the resources in other clusters, by the servers of
// the cluster. An override of a resource takes precedence over one of its group.
func overridePrefixes(b *base, o *config.EtcdOptions, c *catalogs) map[string][]string {
	list, _ := o.ParsedOverrides() // validated before
	exact, groups := map[schema.GroupResource]string{}, map[string]string{}
	for _, each := range list {
		servers := strings.Join(slices.Compact(slices.Sorted(slices.Values(each.Servers))), ";")
		if each.Resource.Resource == "*" {
			groups[each.Resource.Group] = servers
		} else {
			exact[each.Resource] = servers
		}
	}
	out := map[string][]string{}
	for prefix, of := range c.stored() {
		servers, ok := exact[of]
		if ok {
			delete(exact, of)
		} else if servers, ok = groups[of.Group]; !ok {
			continue
		}
		out[servers] = append(out[servers], prefix)
	}
	for of := range exact {
		b.log.Warn("--etcd-servers-overrides names a resource that is not stored, or that shares the storage of another resource", "resource", of.String())
	}
	for servers := range out {
		slices.Sort(out[servers])
	}
	return out
}
