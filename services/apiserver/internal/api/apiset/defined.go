package apiset

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/sorted"
)

// custom holds the kinds of custom resources. It is immutable. A changed copy shares all unchanged
// parts, because thousands of definitions may be added one at a time. All trees have the group as
// the first part of the key. Methods accept a nil *custom unless they change it.
type custom struct {
	// resources holds the served versions of each resource. The key is the resource name.
	resources tree[[]*Resource]
	// kinds holds the resources of each kind in all versions, ordered by resource name. The key is
	// the kind. Usually all versions belong to one resource. While definitions swap names, a kind
	// may belong to several resources.
	kinds tree[[]*Resource]
	// versions holds the number of resources in each group version. The key is the version.
	versions tree[int]
}

// withDefinitions returns a copy of c with the changed definitions replaced. It omits versions that
// are built in (base). c may be nil.
func (c *custom) withDefinitions(base *Set, changed []Definition) *custom {
	if c != nil && len(changed) == 0 {
		return c
	}
	var next *custom
	if c == nil {
		next = &custom{resources: newTree[[]*Resource](), kinds: newTree[[]*Resource](), versions: newTree[int]()}
	} else {
		next = &custom{resources: c.resources.Copy(), kinds: c.kinds.Copy(), versions: c.versions.Copy()}
	}
	for _, d := range changed {
		key := name{group: d.Resource.Group, name: d.Resource.Resource}
		next.removeKinds(valueOf(next.resources, key))
		versions := slices.DeleteFunc(slices.Clone(d.Versions), func(r *Resource) bool { return base.Resource(r.GVR()) != nil })
		next.addKinds(versions)
		setValue(next.resources, key, versions, len(versions) > 0)
	}
	return next
}

// removeKinds removes resources from c.kinds and c.versions.
func (c *custom) removeKinds(resources []*Resource) {
	for _, resource := range resources {
		key := name{group: resource.Group, name: resource.Kind.Kind}
		remaining := slices.DeleteFunc(slices.Clone(valueOf(c.kinds, key)), func(o *Resource) bool { return o == resource })
		setValue(c.kinds, key, remaining, len(remaining) > 0)
		c.addToVersionCount(resource, -1)
	}
}

// addKinds adds resources to c.kinds and c.versions.
func (c *custom) addKinds(resources []*Resource) {
	for _, resource := range resources {
		key := name{group: resource.Group, name: resource.Kind.Kind}
		all := append(slices.Clone(valueOf(c.kinds, key)), resource)
		slices.SortStableFunc(all, func(a, b *Resource) int { return cmp.Compare(a.Kind.Resource, b.Kind.Resource) })
		setValue(c.kinds, key, all, true)
		c.addToVersionCount(resource, 1)
	}
}

// addToVersionCount adds delta to the number of resources in the group version of r.
func (c *custom) addToVersionCount(r *Resource, delta int) {
	key := name{group: r.Group, name: r.Version}
	count := valueOf(c.versions, key) + delta
	setValue(c.versions, key, count, count > 0)
}

// versionsOf returns the served versions of a resource.
func (c *custom) versionsOf(group, resource string) []*Resource {
	if c == nil {
		return nil
	}
	return valueOf(c.resources, name{group: group, name: resource})
}

// resource returns a resource in one version, or nil.
func (c *custom) resource(gvr schema.GroupVersionResource) *Resource {
	for _, r := range c.versionsOf(gvr.Group, gvr.Resource) {
		if r.Version == gvr.Version {
			return r
		}
	}
	return nil
}

// kind returns the resource of a kind, or nil. If several resources have the kind, it returns the
// last one by name.
func (c *custom) kind(gvk schema.GroupVersionKind) (found *Resource) {
	if c == nil {
		return nil
	}
	for _, r := range valueOf(c.kinds, name{group: gvk.Group, name: gvk.Kind}) {
		if r.Version == gvk.Version {
			found = r
		}
	}
	return found
}

// servesGroup reports whether a group has any version.
func (c *custom) servesGroup(group string) (found bool) {
	if c == nil {
		return false
	}
	c.versions.Ascend(item[int]{name: name{group: group}}, func(i item[int]) bool {
		found = i.group == group
		return false // only the first version at or after the group matters
	})
	return found
}

// serves reports whether a group version has any resource.
func (c *custom) serves(gv schema.GroupVersion) bool {
	return c != nil && valueOf(c.versions, name{group: gv.Group, name: gv.Version}) > 0
}

// name is the key of a tree: an API group, and the name of a resource, kind or version in it.
type name struct{ group, name string }

// tree maps names to values. Copies share unchanged parts. A tree that has been copied must not be
// changed, and may be read concurrently.
type tree[V any] = sorted.Set[item[V]]

// item is an entry of a tree.
type item[V any] struct {
	name
	value V
}

// degree is the degree of the B-tree. It is small, because a change copies the nodes on its path.
const degree = 16

func newTree[V any]() tree[V] {
	return sorted.NewSet(func(a, b item[V]) bool {
		if a.group != b.group {
			return a.group < b.group
		}
		return a.name.name < b.name.name
	}, degree)
}

// valueOf returns the value at a name, or the zero value.
func valueOf[V any](t tree[V], key name) V {
	found, _ := t.Get(item[V]{name: key})
	return found.value
}

// setValue sets a value, or deletes it if keep is false.
func setValue[V any](t tree[V], key name, value V, keep bool) {
	if keep {
		t.Set(item[V]{name: key, value: value})
	} else {
		t.Delete(item[V]{name: key})
	}
}
