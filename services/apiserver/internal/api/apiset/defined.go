package apiset

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/sorted"
)

// custom holds the kinds that definitions add. It is immutable. A successor shares all unchanged
// parts, because there may be thousands of definitions that are added one at a time.
type custom struct {
	// resources holds the served versions of each resource.
	resources tree[[]*Resource]
	// kinds holds the resources of each kind in all versions, ordered by resource. Definitions
	// release and get names one at a time, so a kind may have several resources for a while.
	kinds tree[[]*Resource]
	// versions holds the number of resources in each group version.
	versions tree[int]
}

// withDefinitions returns the custom kinds with some definitions replaced. c may be nil.
func (c *custom) withDefinitions(base *Set, changed []Definition) *custom {
	if c != nil && len(changed) == 0 {
		return c
	}
	var next *custom
	if c == nil {
		next = &custom{newTree[[]*Resource](), newTree[[]*Resource](), newTree[int]()}
	} else {
		next = &custom{c.resources.Copy(), c.kinds.Copy(), c.versions.Copy()}
	}
	for _, d := range changed {
		key := name{d.Resource.Group, d.Resource.Resource}
		next.remove(valueOf(next.resources, key))
		versions := slices.DeleteFunc(slices.Clone(d.Versions), func(r *Resource) bool { return base.Resource(r.GVR()) != nil })
		next.add(versions)
		setValue(next.resources, key, versions, len(versions) > 0)
	}
	return next
}

func (c *custom) remove(resources []*Resource) {
	for _, r := range resources {
		key := name{r.Group, r.Kind.Kind}
		remaining := slices.DeleteFunc(slices.Clone(valueOf(c.kinds, key)), func(o *Resource) bool { return o == r })
		setValue(c.kinds, key, remaining, len(remaining) > 0)
		c.count(r, -1)
	}
}

func (c *custom) add(resources []*Resource) {
	for _, r := range resources {
		key := name{r.Group, r.Kind.Kind}
		all := append(slices.Clone(valueOf(c.kinds, key)), r)
		slices.SortStableFunc(all, func(a, b *Resource) int { return cmp.Compare(a.Kind.Resource, b.Kind.Resource) })
		setValue(c.kinds, key, all, true)
		c.count(r, 1)
	}
}

// count adds delta to the number of resources in the group version of r.
func (c *custom) count(r *Resource, delta int) {
	key := name{r.Group, r.Version}
	n := valueOf(c.versions, key) + delta
	setValue(c.versions, key, n, n > 0)
}

// versionsOf returns the served versions of a resource. c may be nil.
func (c *custom) versionsOf(group, resource string) []*Resource {
	if c == nil {
		return nil
	}
	return valueOf(c.resources, name{group, resource})
}

func (c *custom) resource(gvr schema.GroupVersionResource) *Resource {
	for _, r := range c.versionsOf(gvr.Group, gvr.Resource) {
		if r.Version == gvr.Version {
			return r
		}
	}
	return nil
}

func (c *custom) kind(gvk schema.GroupVersionKind) (found *Resource) {
	if c == nil {
		return nil
	}
	for _, r := range valueOf(c.kinds, name{gvk.Group, gvk.Kind}) {
		if r.Version == gvk.Version {
			found = r
		}
	}
	return found
}

func (c *custom) servesGroup(group string) (found bool) {
	if c == nil {
		return false
	}
	c.versions.Ascend(item[int]{name: name{group: group}}, func(i item[int]) bool {
		found = i.group == group
		return false
	})
	return found
}

func (c *custom) serves(gv schema.GroupVersion) bool {
	return c != nil && valueOf(c.versions, name{gv.Group, gv.Version}) > 0
}

// name is a name in an API group.
type name struct{ group, name string }

// tree maps names to values. Copies share unchanged parts. A tree that has been copied may be read
// concurrently and must not be changed.
type tree[V any] = sorted.Set[item[V]]

// item is an entry of a tree.
type item[V any] struct {
	name
	value V
}

// degree keeps the nodes small, which a change copies.
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
		t.Set(item[V]{key, value})
	} else {
		t.Delete(item[V]{name: key})
	}
}
