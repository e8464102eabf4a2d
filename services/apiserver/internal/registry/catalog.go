package registry

import (
	"fmt"
	"slices"
	"sort"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is an API group with its versions in order of preference.
type Group struct {
	Name     string
	Versions []string
	// Priority orders groups in discovery, higher first (groupPriorityMinimum of the group's
	// APIServices).
	Priority int
}

// Catalog is the set of kinds that a server serves. It is immutable.
type Catalog struct {
	groups []Group
	kinds  []*Kind
	byGVR  map[schema.GroupVersionResource]*Kind
	byGVK  map[schema.GroupVersionKind]*Kind
}

// NewCatalog returns a catalog. It returns an error for a kind of an undeclared group version, a
// resource that is declared twice, or a stored kind without a key prefix.
func NewCatalog(groups []Group, kinds []*Kind) (*Catalog, error) {
	catalog := &Catalog{
		groups: slices.Clone(groups),
		kinds:  kinds,
		byGVR:  map[schema.GroupVersionResource]*Kind{},
		byGVK:  map[schema.GroupVersionKind]*Kind{},
	}
	sort.SliceStable(catalog.groups, func(i, j int) bool { return catalog.groups[i].Priority > catalog.groups[j].Priority })
	served := map[schema.GroupVersion]bool{}
	for _, g := range catalog.groups {
		for _, v := range g.Versions {
			served[schema.GroupVersion{Group: g.Name, Version: v}] = true
		}
	}
	for _, kind := range kinds {
		if !served[kind.GroupVersion()] {
			return nil, fmt.Errorf("kind %s: its group version is not declared", kind.GVK())
		}
		if catalog.byGVR[kind.GVR()] != nil {
			return nil, fmt.Errorf("resource %s is declared twice", kind.GVR())
		}
		if !kind.Virtual && kind.Stored.Prefix == "" {
			return nil, fmt.Errorf("kind %s: no stored prefix", kind.GVK())
		}
		catalog.byGVR[kind.GVR()] = kind
		catalog.byGVK[kind.GVK()] = kind
	}
	return catalog, nil
}

// Filter returns a catalog of the kinds for which match returns true. It omits versions and groups
// without kinds.
func (c *Catalog) Filter(match func(*Kind) bool) (*Catalog, error) {
	var kinds []*Kind
	used := map[schema.GroupVersion]bool{}
	for _, kind := range c.kinds {
		if match(kind) {
			kinds = append(kinds, kind)
			used[kind.GroupVersion()] = true
		}
	}
	var groups []Group
	for _, group := range c.groups {
		versions := group.Versions
		group.Versions = nil
		for _, v := range versions {
			if used[schema.GroupVersion{Group: group.Name, Version: v}] {
				group.Versions = append(group.Versions, v)
			}
		}
		if len(group.Versions) > 0 {
			groups = append(groups, group)
		}
	}
	return NewCatalog(groups, kinds)
}

// Groups returns the groups in discovery order.
func (c *Catalog) Groups() []Group { return c.groups }

// Kinds returns the kinds in the order of their declaration.
func (c *Catalog) Kinds() []*Kind { return c.kinds }

// Resource returns the kind that serves a resource, or nil if none does.
func (c *Catalog) Resource(gvr schema.GroupVersionResource) *Kind { return c.byGVR[gvr] }

// Kind returns the kind of an object's type, or nil if it is not served.
func (c *Catalog) Kind(gvk schema.GroupVersionKind) *Kind { return c.byGVK[gvk] }

// ServesGroup reports whether a group exists.
func (c *Catalog) ServesGroup(name string) bool {
	return slices.ContainsFunc(c.groups, func(g Group) bool { return g.Name == name })
}

// Serves reports whether a group version exists.
func (c *Catalog) Serves(gv schema.GroupVersion) bool {
	return slices.ContainsFunc(c.groups, func(g Group) bool {
		return g.Name == gv.Group && slices.Contains(g.Versions, gv.Version)
	})
}
