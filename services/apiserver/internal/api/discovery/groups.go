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

// GroupVersion is a group version of custom resources or of an extension server.
type GroupVersion struct {
	Group, Version string
	// GroupPriority and VersionPriority are the priorities in its APIService. Higher ones come
	// first.
	GroupPriority, VersionPriority int
	// Resources holds resources and subresources ("widgets/status"), as returned by the function
	// Resources or by the extension server. The caller must not change the list afterwards. If a
	// later call of Replace passes another list, the documents of the group are rebuilt.
	Resources []metav1.APIResource
	// Aggregated, if not nil, is the aggregated form of Resources as the extension server returned
	// it.
	Aggregated []apidiscoveryv2.APIResourceDiscovery
	// FillResponseKinds adds the group and version to response kinds of the aggregated form that have none.
	FillResponseKinds bool
	// Stale marks a group version whose extension server does not respond. Resources is the last
	// known list.
	Stale bool
	// Unserved marks a group version that has an APIService but that no server serves. The lists of
	// groups and versions contain it, but it has no resource list and no aggregated form.
	Unserved bool
}

// Resources returns the resource list of kinds: the resources and their subresources, sorted by
// name.
func Resources(kinds []*registry.Kind) []metav1.APIResource {
	out := []metav1.APIResource{}
	for _, kind := range kinds {
		apiResource := metav1.APIResource{
			Name: kind.Resource, SingularName: kind.Singular, Namespaced: kind.Namespaced, Kind: kind.Kind,
			Verbs: kind.Verbs, ShortNames: kind.ShortNames, Categories: kind.Categories,
		}
		if kind.Presentation.Verbs != nil {
			apiResource.Verbs = kind.Presentation.Verbs
		}
		if apiResource.Verbs == nil {
			apiResource.Verbs = registry.AllVerbs
		}
		if !kind.Virtual {
			apiResource.StorageVersionHash = storageVersionHash(kind.StoredGVK())
		}
		out = append(out, apiResource)
		for _, subresource := range kind.Subresources {
			sub := metav1.APIResource{
				Name: kind.Resource + "/" + subresource.Name, Namespaced: kind.Namespaced, Kind: subresource.GVK.Kind, Verbs: subresource.Verbs,
			}
			if gv := subresource.GVK.GroupVersion(); !gv.Empty() && gv != kind.GroupVersion() {
				sub.Group = gv.Group
				sub.Version = gv.Version
			}
			out = append(out, sub)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// storageVersionHash returns a hash of the storage version of a resource. It is the same as in
// Kubernetes.
func storageVersionHash(stored schema.GroupVersionKind) string {
	sum := sha256.Sum256([]byte(stored.Group + "/" + stored.Version + "/" + stored.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// group is an API group with its versions in order of preference.
type group struct {
	name string
	// priority orders the groups in the aggregated form, and listPriority in APIGroupList. They
	// differ if the group has unserved versions, which affect only listPriority.
	priority, listPriority int
	// listName orders groups with the same listPriority in APIGroupList. It is the alphabetically
	// first name of an APIService among the versions with the highest group priority. It is empty
	// for built-in groups.
	listName string
	versions []groupVersion
}

// groupVersion is a version of a group. See GroupVersion for its fields.
type groupVersion struct {
	name              string
	priority          int
	resources         []metav1.APIResource
	aggregated        []apidiscoveryv2.APIResourceDiscovery
	stale             bool
	fillResponseKinds bool // GroupVersion.FillResponseKinds
	unserved          bool
}

// version returns a version of the group, or nil.
func (g *group) version(name string) *groupVersion {
	for i := range g.versions {
		if g.versions[i].name == name {
			return &g.versions[i]
		}
	}
	return nil
}

// builtInGroups returns the groups of a catalog, in its order.
func builtInGroups(catalog *registry.Catalog, priority func(schema.GroupVersion) int) []*group {
	kinds := map[schema.GroupVersion][]*registry.Kind{}
	for _, k := range catalog.Kinds() {
		kinds[k.GroupVersion()] = append(kinds[k.GroupVersion()], k)
	}
	var out []*group
	for _, g := range catalog.Groups() {
		described := &group{name: g.Name, priority: g.Priority}
		for _, v := range g.Versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v}
			described.versions = append(described.versions,
				groupVersion{name: v, priority: priority(gv), resources: Resources(kinds[gv])})
		}
		out = append(out, described)
	}
	return out
}

// equal reports whether two groups have the same documents. It compares the resource lists by
// identity. other may be nil.
func (g *group) equal(other *group) bool {
	return other != nil && g.name == other.name && slices.EqualFunc(g.versions, other.versions, func(a, b groupVersion) bool {
		return a.name == b.name && a.stale == b.stale && a.fillResponseKinds == b.fillResponseKinds && a.unserved == b.unserved &&
			sameList(a.resources, b.resources) &&
			sameList(a.aggregated, b.aggregated)
	})
}

// sameList reports whether two immutable slices share the same memory.
func sameList[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// mergeGroups adds dynamic group versions to the built-in groups. It returns all groups in order of
// priority. Among groups with the same priority, the built-in ones come first, and the others are
// sorted by name. The versions of a group are sorted by priority. A dynamic group version does not
// replace a built-in one.
func mergeGroups(builtIn []*group, dynamic []GroupVersion) []*group {
	var out []*group
	byName := map[string]*group{}
	for _, g := range builtIn {
		merged := &group{name: g.name, priority: g.priority, listPriority: g.priority, versions: slices.Clone(g.versions)}
		out = append(out, merged)
		byName[g.name] = merged
	}
	dynamic = slices.Clone(dynamic)
	sort.SliceStable(dynamic, func(i, j int) bool { return less(&dynamic[i], &dynamic[j]) })
	for i := range dynamic {
		version := &dynamic[i]
		g := byName[version.Group]
		if g == nil {
			g = &group{name: version.Group}
			out = append(out, g)
			byName[version.Group] = g
		}
		if g.version(version.Version) != nil {
			continue
		}
		name := version.Version + "." + version.Group // of the APIService
		if version.GroupPriority > g.listPriority || version.GroupPriority == g.listPriority && g.listName != "" && name < g.listName {
			g.listName = name
		}
		g.listPriority = max(g.listPriority, version.GroupPriority)
		if !version.Unserved {
			g.priority = max(g.priority, version.GroupPriority)
		}
		g.versions = append(g.versions, groupVersion{
			name: version.Version, priority: version.VersionPriority, resources: version.Resources, aggregated: version.Aggregated,
			stale: version.Stale, fillResponseKinds: version.FillResponseKinds, unserved: version.Unserved,
		})
		slices.SortStableFunc(g.versions, func(a, b groupVersion) int {
			return cmp.Or(cmp.Compare(b.priority, a.priority), apiversion.CompareKubeAwareVersionStrings(b.name, a.name))
		})
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].priority > out[j].priority })
	return out
}

// compareInGroupList returns a negative number if a precedes b in APIGroupList. Groups with the
// same priority are sorted by the names of their APIServices, built-in groups first.
func compareInGroupList(a, b *group) int {
	return cmp.Or(cmp.Compare(b.listPriority, a.listPriority), cmp.Compare(a.listName, b.listName))
}

// less reports whether a precedes b in the order of group, version priority and version.
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
