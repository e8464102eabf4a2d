package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"sort"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"binnacle/services/apiserver/internal/registry"
)

// GroupVersion is a group version that is not built in.
type GroupVersion struct {
	Group, Version string
	// GroupPriority and VersionPriority are those of its APIService. Higher ones come first.
	GroupPriority, VersionPriority int
	// Resources holds resources and subresources ("widgets/status"), as returned by Resources or by
	// the server behind the group version. The list must not change afterwards. A new list rebuilds
	// the documents of the group.
	Resources []metav1.APIResource
	// Aggregated, if not nil, is the aggregated form of Resources as the extension server returned
	// it.
	Aggregated []apidiscoveryv2.APIResourceDiscovery
	// Named adds the group version to each resource of the aggregated form that has none.
	Named bool
	// Stale marks a group version whose server does not respond at present. Resources is the last
	// known list.
	Stale bool
	// Unserved marks a group version that an APIService announces and no server serves. The lists
	// of groups and versions name it. It has no resources and no aggregated form.
	Unserved bool
}

// Resources returns kinds and their subresources, sorted by name.
func Resources(kinds []*registry.Kind) []metav1.APIResource {
	out := []metav1.APIResource{}
	for _, k := range kinds {
		r := metav1.APIResource{
			Name: k.Resource, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Kind,
			Verbs: k.Verbs, ShortNames: k.ShortNames, Categories: k.Categories,
		}
		if k.Presentation.Verbs != nil {
			r.Verbs = k.Presentation.Verbs
		}
		if r.Verbs == nil {
			r.Verbs = registry.AllVerbs
		}
		if !k.Virtual {
			r.StorageVersionHash = storageVersionHash(k.StoredGVK())
		}
		out = append(out, r)
		for _, s := range k.Subresources {
			sub := metav1.APIResource{
				Name: k.Resource + "/" + s.Name, Namespaced: k.Namespaced, Kind: s.GVK.Kind, Verbs: s.Verbs,
			}
			if gv := s.GVK.GroupVersion(); !gv.Empty() && gv != k.GroupVersion() {
				sub.Group = gv.Group
				sub.Version = gv.Version
			}
			out = append(out, sub)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// storageVersionHash returns a hash that changes with a resource's stored form. It hashes the same
// bytes as Kubernetes.
func storageVersionHash(stored schema.GroupVersionKind) string {
	sum := sha256.Sum256([]byte(stored.Group + "/" + stored.Version + "/" + stored.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// group is a group with its versions in order of preference.
type group struct {
	name string
	// priority orders the aggregated form; listed orders APIGroupList. Unserved versions affect
	// only listed.
	priority, listed int
	// first is the APIService name that orders the group in APIGroupList: the least of the versions
	// with the highest group priority. It is empty for built-in groups.
	first    string
	versions []servedVersion
}

// servedVersion is a version of a group in the discovery documents.
type servedVersion struct {
	name       string
	priority   int
	resources  []metav1.APIResource
	aggregated []apidiscoveryv2.APIResourceDiscovery
	stale      bool
	named      bool
	unserved   bool
}

func (g *group) version(name string) *servedVersion {
	for i := range g.versions {
		if g.versions[i].name == name {
			return &g.versions[i]
		}
	}
	return nil
}

// builtIn returns the groups of a catalog, in its order.
func builtIn(catalog *registry.Catalog, priority func(schema.GroupVersion) int) []*group {
	kinds := map[schema.GroupVersion][]*registry.Kind{}
	for _, k := range catalog.Kinds() {
		kinds[k.GroupVersion()] = append(kinds[k.GroupVersion()], k)
	}
	var out []*group
	for _, g := range catalog.Groups() {
		mine := &group{name: g.Name, priority: g.Priority}
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v}
			mine.versions = append(mine.versions, servedVersion{name: v, priority: priority(gv), resources: Resources(kinds[gv])})
		}
		out = append(out, mine)
	}
	return out
}

// equal reports whether two groups have the same description and share their resources.
func (g *group) equal(o *group) bool {
	return o != nil && g.name == o.name && slices.EqualFunc(g.versions, o.versions, func(a, b servedVersion) bool {
		return a.name == b.name && a.stale == b.stale && a.named == b.named && a.unserved == b.unserved && sameList(a.resources, b.resources) && sameList(a.aggregated, b.aggregated)
	})
}

// sameList reports whether two immutable lists are identical.
func sameList[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// merge returns all groups in order of priority. Of groups with the same priority, the built-in
// ones come first. The rest are sorted by name. The versions of a group are sorted by priority.
func merge(builtIn []*group, dynamic []GroupVersion) []*group {
	var out []*group
	byName := map[string]*group{}
	for _, g := range builtIn {
		mine := &group{name: g.name, priority: g.priority, listed: g.priority, versions: slices.Clone(g.versions)}
		out, byName[g.name] = append(out, mine), mine
	}
	dynamic = slices.Clone(dynamic)
	sort.SliceStable(dynamic, func(i, j int) bool { return less(&dynamic[i], &dynamic[j]) })
	for i := range dynamic {
		d := &dynamic[i]
		g := byName[d.Group]
		if g == nil {
			g = &group{name: d.Group}
			out, byName[d.Group] = append(out, g), g
		}
		if g.version(d.Version) != nil {
			continue
		}
		if name := d.Version + "." + d.Group; d.GroupPriority > g.listed || d.GroupPriority == g.listed && (g.first != "" && name < g.first) {
			g.first = name
		}
		g.listed = max(g.listed, d.GroupPriority)
		if !d.Unserved {
			g.priority = max(g.priority, d.GroupPriority)
		}
		g.versions = append(g.versions, servedVersion{
			name: d.Version, priority: d.VersionPriority, resources: d.Resources, aggregated: d.Aggregated, stale: d.Stale, named: d.Named, unserved: d.Unserved,
		})
		slices.SortStableFunc(g.versions, func(a, b servedVersion) int {
			return cmp.Or(cmp.Compare(b.priority, a.priority), apiversion.CompareKubeAwareVersionStrings(b.name, a.name))
		})
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].priority > out[j].priority })
	return out
}

// inGroupList compares groups for APIGroupList. Groups of the same priority are sorted by the names
// of their APIServices, the built-in ones first.
func inGroupList(a, b *group) int {
	return cmp.Or(cmp.Compare(b.listed, a.listed), cmp.Compare(a.first, b.first))
}

// less reports whether a is listed before b.
func less(a, b *GroupVersion) bool {
	switch {
	case a.Group != b.Group:
		return a.Group < b.Group
	case a.VersionPriority != b.VersionPriority:
		return a.VersionPriority > b.VersionPriority
	default:
		return apiversion.CompareKubeAwareVersionStrings(a.Version, b.Version) > 0
	}
}
