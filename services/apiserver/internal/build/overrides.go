package build

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// override is one value of --etcd-servers-overrides: a resource and its servers.
type override struct {
	resource schema.GroupResource // Resource may be "*"
	servers  []string
}

var errOverride = errors.New("--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated")

// overrides parses the flag. Later values take precedence.
func (o *EtcdOptions) overrides() (out []override, errs []error) {
	for _, value := range o.Overrides {
		resource, servers, ok := strings.Cut(value, "#")
		group, name, named := strings.Cut(resource, "/")
		if !ok || !named || strings.Contains(servers, "#") || strings.Contains(name, "/") {
			errs = append(errs, errOverride)
			continue
		}
		out = append(out, override{schema.GroupResource{Group: group, Resource: name}, strings.Split(servers, ";")})
	}
	return out, errs
}

func (o *EtcdOptions) validateOverrides() []error {
	list, errs := o.overrides()
	for _, each := range list {
		if mainEtcdOnly(each.resource) {
			errs = append(errs, fmt.Errorf("--etcd-servers-overrides: %s are what the server itself goes by, and stay with --etcd-servers", each.resource))
		}
		for _, s := range each.servers {
			if scheme, rest, ok := strings.Cut(s, "://"); !ok || rest == "" || !slices.Contains([]string{"http", "https", "unix", "unixs"}, scheme) {
				errs = append(errs, fmt.Errorf("--etcd-servers-overrides: %q is not a URL of an etcd server", s))
			}
		}
	}
	return errs
}

// mainEtcdOnly reports whether a resource must be stored in the main etcd. Authentication,
// authorization, the API set and admission depend on a single history, and must not depend on the
// availability of another cluster.
func mainEtcdOnly(r schema.GroupResource) bool {
	switch r.Group {
	case "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io":
		return true
	}
	return slices.Contains([]schema.GroupResource{
		{Resource: "namespaces"}, {Resource: "serviceaccounts"}, {Resource: "secrets"}, {Resource: "pods"}, {Resource: "nodes"},
		{Resource: "persistentvolumes"}, {Resource: "persistentvolumeclaims"}, {Resource: "services"}, {Resource: "endpoints"},
		{Resource: "limitranges"}, {Resource: "resourcequotas"}, {Resource: "configmaps"}, {Resource: "*"},
		{Group: "networking.k8s.io", Resource: "ipaddresses"}, {Group: "networking.k8s.io", Resource: "servicecidrs"}, {Group: "networking.k8s.io", Resource: "ingressclasses"},
		{Group: "networking.k8s.io", Resource: "*"},
		{Group: "storage.k8s.io", Resource: "volumeattachments"}, {Group: "storage.k8s.io", Resource: "csidrivers"}, {Group: "storage.k8s.io", Resource: "storageclasses"}, {Group: "storage.k8s.io", Resource: "*"},
		{Group: "scheduling.k8s.io", Resource: "priorityclasses"}, {Group: "scheduling.k8s.io", Resource: "*"},
		{Group: "node.k8s.io", Resource: "runtimeclasses"}, {Group: "node.k8s.io", Resource: "*"},
		{Group: "resource.k8s.io", Resource: "resourceclaims"}, {Group: "resource.k8s.io", Resource: "resourceslices"}, {Group: "resource.k8s.io", Resource: "*"},
		{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}, {Group: "certificates.k8s.io", Resource: "*"},
	}, r)
}

// overridePrefixes returns the key prefixes of the resources in other clusters, by the servers of
// the cluster. An override of a resource takes precedence over one of its group.
func (p *parts) overridePrefixes() map[string][]string {
	list, _ := p.options.Etcd.overrides() // validated before
	exact, groups := map[schema.GroupResource]string{}, map[string]string{}
	for _, o := range list {
		servers := strings.Join(slices.Compact(slices.Sorted(slices.Values(o.servers))), ";")
		if o.resource.Resource == "*" {
			groups[o.resource.Group] = servers
		} else {
			exact[o.resource] = servers
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
