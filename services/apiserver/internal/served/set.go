package served

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/apply"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/watchcache"
)

// Resource is one kind as it is served, with all that its handlers need.
type Resource struct {
	*registry.Kind
	Coder *codec.Coder
	// Store has the objects, below keys that begin with Prefix, which ends with a
	// slash; nil for kinds that store nothing.
	Store  *watchcache.Store
	Prefix string
	// While are what creations of objects depend on: that what defines the kind is there.
	While []storage.Premise
	// Slot tells the kept encodings of kinds that share a store apart.
	Slot int
	// Variant is that of the store in which objects have the fields that they are selected by here.
	Variant string
	// Life ends when what defines the kind says something else; nil for what stays. Watches end with it.
	Life context.Context
	// owners keep field ownership, by sub-resource; "" is the object itself.
	owners map[string]*apply.Manager
}

// ErrGone tells that a kind is not served any more as it was when the request came.
var ErrGone = errors.New("the kind of the object is not served any more")

// ErrChanged tells that objects are selected by other fields than when the request came.
var ErrChanged = errors.New("the kind of the object has changed")

// MaxSlots bounds the slots of kinds that share a store, which the forms of kept encodings
// have to hold. It is more than there are definitions in years.
const MaxSlots = 1 << 28

// Key of an object in the store.
func (r *Resource) Key(namespace, name string) string {
	if r.Namespaced {
		return r.Prefix + namespace + "/" + name
	}
	return r.Prefix + name
}

// Owner keeps the field ownership of what is written by a sub-resource, nil for
// the object itself.
func (r *Resource) Owner(sub *registry.Subresource) *apply.Manager {
	if sub == nil {
		return r.owners[""]
	}
	return r.owners[sub.Name]
}

// KeyPrefix is where a kind's objects stand in the store.
func KeyPrefix(root string, k *registry.Kind) string { return root + "/" + k.Stored.Prefix + "/" }

// Builder makes sets. With nothing set its resources have declarations alone.
type Builder struct {
	Codec *codec.Codec
	Cache *watchcache.Cache
	// Elsewhere are caches of other stores, by the prefixes of the keys that they have.
	Elsewhere map[string]*watchcache.Cache
	// Root is the key that all resources stand below, without a slash at its end.
	Root string
	// Fields make the owners.
	Fields *apply.Fields
}

// Set is the kinds that are served at one time. It is immutable; a nil Set
// serves nothing.
type Set struct {
	// base has the built-in kinds of a set that has custom ones; both are nil where the
	// built-in kinds are the set's own, which the maps have.
	base   *Set
	custom *custom
	// revision of the store whose definitions the set has; 0 for built-in kinds.
	revision int64
	byGVR    map[schema.GroupVersionResource]*Resource
	builtIn  map[schema.GroupResource]bool
	stored   map[schema.GroupVersionKind]*Resource // that have a store, by kind
	groups   map[string]bool
	versions map[schema.GroupVersion]bool
}

// Set serves the kinds of a catalog, as they are at a revision of the store.
func (b Builder) Set(c *registry.Catalog, revision int64) *Set {
	s := &Set{revision: revision, byGVR: map[schema.GroupVersionResource]*Resource{}, builtIn: map[schema.GroupResource]bool{}, stored: map[schema.GroupVersionKind]*Resource{}, groups: map[string]bool{}, versions: map[schema.GroupVersion]bool{}}
	for _, g := range c.Groups() {
		s.groups[g.Name] = true
		for _, v := range g.Versions {
			s.versions[schema.GroupVersion{Group: g.Name, Version: v}] = true
		}
	}
	slots := map[string]int{}
	for _, k := range c.Kinds() {
		r := b.resource(k)
		if r.Store != nil {
			r.Slot = slots[r.Prefix]
			slots[r.Prefix]++
			s.stored[k.GVK()] = r
		}
		s.byGVR[k.GVR()] = r
		s.builtIn[k.GroupResource()] = true
	}
	return s
}

func (b Builder) resource(k *registry.Kind) *Resource {
	r := &Resource{Kind: k}
	if b.Codec != nil {
		r.Coder = b.Codec.Of(k)
	}
	if b.Cache != nil && !k.Virtual {
		r.Prefix = KeyPrefix(b.Root, k)
		cache := b.Cache
		if other := b.Elsewhere[r.Prefix]; other != nil {
			cache = other
		}
		r.Store = cache.Store(r.Prefix)
	}
	if b.Fields != nil {
		r.owners = map[string]*apply.Manager{"": b.Fields.Manager(k, nil)}
		for i := range k.Subresources {
			sub := &k.Subresources[i]
			r.owners[sub.Name] = b.Fields.Manager(k, sub)
		}
	}
	return r
}

// Only is the set of the kinds of a catalog, which are all of this set too.
func (s *Set) Only(c *registry.Catalog) *Set {
	out := Builder{}.Set(c, s.revision)
	for gvr := range out.byGVR {
		out.byGVR[gvr] = s.byGVR[gvr]
		if r := s.byGVR[gvr]; r != nil && r.Store != nil {
			out.stored[r.GVK()] = r
		}
	}
	return out
}

// Revision of the store that the set belongs to.
func (s *Set) Revision() int64 { return s.revision }

// Resource finds a kind by the resource in a path; nil when it is not served.
func (s *Set) Resource(gvr schema.GroupVersionResource) *Resource {
	if s == nil {
		return nil
	}
	if r := s.byGVR[gvr]; r != nil {
		return r
	}
	if r := s.base.Resource(gvr); r != nil {
		return r
	}
	return s.custom.resource(gvr)
}

// ServesResource reports whether a resource is served in any version.
func (s *Set) ServesResource(gr schema.GroupResource) bool {
	return s != nil && (s.builtIn[gr] || s.base.ServesResource(gr) || len(s.custom.of(gr.Group, gr.Resource)) > 0)
}

// StoredKind finds a kind of which objects are stored; nil when none is served.
func (s *Set) StoredKind(gvk schema.GroupVersionKind) *Resource {
	if s == nil {
		return nil
	}
	if r := s.stored[gvk]; r != nil {
		return r
	}
	if r := s.base.StoredKind(gvk); r != nil { // no definition takes the place of a built-in kind
		return r
	}
	return s.custom.kind(gvk)
}

// Family are the resources of the set that share a place in the store with a kind:
// the versions in which its objects are served.
func (s *Set) Family(k *registry.Kind) []*Resource {
	related := func(r *Resource) bool {
		return r.Stored.Prefix == k.Stored.Prefix && r.Virtual == k.Virtual && (!k.Virtual || r.Kind == k)
	}
	var out []*Resource
	for at := s; at != nil; at = at.base {
		for _, r := range at.byGVR {
			if related(r) {
				out = append(out, r)
			}
		}
		for _, r := range at.custom.of(k.Group, k.Resource) {
			if related(r) {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b *Resource) int { return strings.Compare(a.GVR().String(), b.GVR().String()) })
	return out
}

// ServesGroup tells whether a group exists.
func (s *Set) ServesGroup(name string) bool {
	return s != nil && (s.groups[name] || s.base.ServesGroup(name) || s.custom.servesGroup(name))
}

// BuiltIn tells whether a group has built-in kinds.
func (s *Set) BuiltIn(group string) bool {
	if s != nil && s.base != nil {
		return s.base.BuiltIn(group)
	}
	return s != nil && s.groups[group]
}

// BuiltIns is the set without the kinds that definitions add.
func (s *Set) BuiltIns() *Set {
	if s != nil && s.base != nil {
		return s.base.BuiltIns()
	}
	return s
}

// Serves tells whether a group version exists.
func (s *Set) Serves(gv schema.GroupVersion) bool {
	return s != nil && (s.versions[gv] || s.base.Serves(gv) || s.custom.serves(gv))
}
