package apiset

import (
	"cmp"
	"slices"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	next := &custom{}
	if c != nil {
		next.resources, next.kinds, next.versions = c.resources.copy(), c.kinds.copy(), c.versions.copy()
	}
	for _, d := range changed {
		key := name{d.Resource.Group, d.Resource.Resource}
		next.remove(next.resources.get(key))
		versions := slices.DeleteFunc(slices.Clone(d.Versions), func(r *Resource) bool { return base.Resource(r.GVR()) != nil })
		next.add(versions)
		next.resources.set(key, versions, len(versions) > 0)
	}
	return next
}

func (c *custom) remove(resources []*Resource) {
	for _, r := range resources {
		key := name{r.Group, r.Kind.Kind}
		remaining := slices.DeleteFunc(slices.Clone(c.kinds.get(key)), func(o *Resource) bool { return o == r })
		c.kinds.set(key, remaining, len(remaining) > 0)
		c.count(r, -1)
	}
}

func (c *custom) add(resources []*Resource) {
	for _, r := range resources {
		key := name{r.Group, r.Kind.Kind}
		all := append(slices.Clone(c.kinds.get(key)), r)
		slices.SortStableFunc(all, func(a, b *Resource) int { return cmp.Compare(a.Kind.Resource, b.Kind.Resource) })
		c.kinds.set(key, all, true)
		c.count(r, 1)
	}
}

// count adds delta to the number of resources in the group version of r.
func (c *custom) count(r *Resource, delta int) {
	key := name{r.Group, r.Version}
	n := c.versions.get(key) + delta
	c.versions.set(key, n, n > 0)
}

// versionsOf returns the served versions of a resource. c may be nil.
func (c *custom) versionsOf(group, resource string) []*Resource {
	if c == nil {
		return nil
	}
	return c.resources.get(name{group, resource})
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
	for _, r := range c.kinds.get(name{gvk.Group, gvk.Kind}) {
		if r.Version == gvk.Version {
			found = r
		}
	}
	return found
}

func (c *custom) servesGroup(group string) bool { return c != nil && c.versions.has(group) }

func (c *custom) serves(gv schema.GroupVersion) bool {
	return c != nil && c.versions.get(name{gv.Group, gv.Version}) > 0
}

// name is a name in an API group.
type name struct{ group, name string }

// tree maps names to values. The zero value is empty. Copies share unchanged parts. A tree that has
// been copied may be read concurrently and must not be changed.
type tree[V any] struct{ items *btree.BTreeG[item[V]] }

// item is an entry of a tree.
type item[V any] struct {
	name
	value V
}

func (t *tree[V]) copy() tree[V] {
	if t.items == nil {
		return tree[V]{}
	}
	return tree[V]{t.items.Copy()}
}

// degree keeps the nodes small, which a change copies.
const degree = 16

// get returns the value at a name, or the zero value.
func (t *tree[V]) get(key name) V {
	if t.items == nil {
		var zero V
		return zero
	}
	found, _ := t.items.Get(item[V]{name: key})
	return found.value
}

// set sets a value, or deletes it if keep is false.
func (t *tree[V]) set(key name, value V, keep bool) {
	switch {
	case !keep:
		if t.items != nil {
			t.items.Delete(item[V]{name: key})
		}
		return
	case t.items == nil:
		t.items = btree.NewBTreeGOptions(func(a, b item[V]) bool {
			if a.group != b.group {
				return a.group < b.group
			}
			return a.name.name < b.name.name
		}, btree.Options{NoLocks: true, Degree: degree})
	}
	t.items.Set(item[V]{key, value})
}

// has reports whether the tree has any name of a group.
func (t *tree[V]) has(group string) (found bool) {
	if t.items == nil {
		return false
	}
	t.items.Ascend(item[V]{name: name{group: group}}, func(i item[V]) bool {
		found = i.group == group
		return false
	})
	return found
}

// scan calls each for all entries in order.
func (t *tree[V]) scan(visit func(name, V)) {
	if t.items == nil {
		return
	}
	t.items.Scan(func(i item[V]) bool {
		visit(i.name, i.value)
		return true
	})
}
