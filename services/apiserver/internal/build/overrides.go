package build

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// overridePrefixes returns the key prefixes of the resources in other clusters, by the servers of
// the cluster. An override of a resource takes precedence over one of its group.
func (p *parts) overridePrefixes() map[string][]string {
	list, _ := p.options.Etcd.ParsedOverrides() // validated before
	exact, groups := map[schema.GroupResource]string{}, map[string]string{}
	for _, o := range list {
		servers := strings.Join(slices.Compact(slices.Sorted(slices.Values(o.Servers))), ";")
		if o.Resource.Resource == "*" {
			groups[o.Resource.Group] = servers
		} else {
			exact[o.Resource] = servers
		}
	}
	out := map[string][]string{}
	for prefix, of := range p.stored() {
		servers, ok := exact[of]
		if ok {
			delete(exact, of)
		} else if servers, ok = groups[of.Group]; !ok {
			continue
		}
		out[servers] = append(out[servers], prefix)
	}
	for of := range exact {
		p.log.Warn("--etcd-servers-overrides names a resource that is not stored, or is stored with another one", "resource", of.String())
	}
	for servers := range out {
		slices.Sort(out[servers])
	}
	return out
}

// newOverrideClusters returns the clusters of --etcd-servers-overrides in the order of their key
// prefixes.
func (p *parts) newOverrideClusters() (out []*cluster) {
	by := p.overridePrefixes()
	for _, servers := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return strings.Compare(by[a][0], by[b][0]) }) {
		out = append(out, &cluster{servers: strings.Split(servers, ";"), prefixes: by[servers]})
	}
	for i, c := range out {
		c.number = i
	}
	return out
}

// clusterOf returns the cluster that stores the keys of a prefix; nil is the main cluster.
func (p *parts) clusterOf(prefix string) *cluster {
	for _, c := range p.overrideClusters {
		if slices.Contains(c.prefixes, prefix) {
			return c
		}
	}
	return nil
}
