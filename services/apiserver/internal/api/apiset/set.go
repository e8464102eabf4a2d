package apiset

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/storage"
)

// Resource is one kind as it is served, with everything that its handlers need.
type Resource struct {
	*registry.Kind
	Coder *codec.KindCodec
	// Store holds the objects. Their keys start with Prefix, which ends with a slash. Both are
	// empty for kinds that store nothing.
	Store  *watchcache.Store
	Prefix string
	// Preconditions holds the preconditions of creations: the definition of the kind must exist.
	Preconditions []storage.Precondition
	// Slot distinguishes the kept encodings of kinds that share a store.
	Slot int
	// Variant is the variant of the store whose entries have the selectable fields of this kind.
	Variant string
	// DefinitionContext is canceled when the definition of the kind changes, which ends watches. It
	// is nil for kinds that do not change.
	DefinitionContext context.Context
	// owners holds the field managers by subresource; "" is the object itself.
	owners map[string]*apply.Manager
}

// ErrGone means that the kind is no longer served as it was when the request began.
var ErrGone = errors.New("the kind of the object is not served any more")

// ErrChanged means that the selectable fields have changed since the request began.
var ErrChanged = errors.New("the kind of the object has changed")

// MaxSlots is the maximum number of slots of kinds that share a store, which the forms of kept
// encodings must be able to represent. It exceeds the number of definitions in years.
const MaxSlots = 1 << 28

// Key returns the key of an object in the store.
func (r *Resource) Key(namespace, name string) string {
	if r.Namespaced {
		return r.Prefix + namespace + "/" + name
	}
	return r.Prefix + name
}

// Owner returns the field manager for writes through a subresource. sub is nil for the object
// itself.
func (r *Resource) Owner(sub *registry.Subresource) *apply.Manager {
	if sub == nil {
		return r.owners[""]
	}
	return r.owners[sub.Name]
}

// KeyPrefix returns the prefix of the keys of a kind's objects.
func KeyPrefix(root string, k *registry.Kind) string { return root + "/" + k.Stored.Prefix + "/" }

// Builder makes sets. Without any field set, its resources have declarations only.
type Builder struct {
	Codec *codec.Codec
	Cache *watchcache.Cache
	// Elsewhere holds the caches of other stores, by the key prefixes that they serve.
	Elsewhere map[string]*watchcache.Cache
	// Root is the common prefix of all keys, without a trailing slash.
	Root string
	// Fields creates the owners.
	Fields *apply.Fields
}

// Set is the set of kinds that are served at one time. It is immutable. A nil Set serves nothing.
type Set struct {
	// base holds the built-in kinds of a set with custom kinds. In a set of built-in kinds only,
	// both are nil and the maps hold the kinds.
	base   *Set
	custom *custom
	// revision is the revision of the store whose definitions the set has; 0 for built-in kinds.
	revision int64
	byGVR    map[schema.GroupVersionResource]*Resource
	builtIn  map[schema.GroupResource]bool
	stored   map[schema.GroupVersionKind]*Resource // resources that have a store, by kind
	groups   map[string]bool
	versions map[schema.GroupVersion]bool
}

// Set returns the set of the kinds of a catalog, at a revision of the store.
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

// resource returns the resource of a kind, with its coder and its store.
func (b Builder) resource(k *registry.Kind) *Resource {
	r := &Resource{Kind: k}
	if b.Codec != nil {
		r.Coder = b.Codec.ForKind(k)
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

// Filter returns the subset with the kinds of a catalog. The set must have all of them.
func (s *Set) Filter(c *registry.Catalog) *Set {
	out := Builder{}.Set(c, s.revision)
	for gvr := range out.byGVR {
		out.byGVR[gvr] = s.byGVR[gvr]
		if r := s.byGVR[gvr]; r != nil && r.Store != nil {
			out.stored[r.GVK()] = r
		}
	}
	return out
}

// Revision returns the revision of the store that the set belongs to.
func (s *Set) Revision() int64 { return s.revision }

// Resource returns the kind of a resource in a path, or nil if it is not served.
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
	return s != nil && (s.builtIn[gr] || s.base.ServesResource(gr) || len(s.custom.versionsOf(gr.Group, gr.Resource)) > 0)
}

// StoredKind returns a kind whose objects are stored, or nil if it is not served.
func (s *Set) StoredKind(gvk schema.GroupVersionKind) *Resource {
	if s == nil {
		return nil
	}
	if r := s.stored[gvk]; r != nil {
		return r
	}
	if r := s.base.StoredKind(gvk); r != nil { // a definition cannot replace a built-in kind
		return r
	}
	return s.custom.kind(gvk)
}

// Family returns the resources of the set that share a key prefix with a kind: the versions in
// which its objects are served.
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
		for _, r := range at.custom.versionsOf(k.Group, k.Resource) {
			if related(r) {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b *Resource) int { return strings.Compare(a.GVR().String(), b.GVR().String()) })
	return out
}

// ServesGroup reports whether a group is served.
func (s *Set) ServesGroup(name string) bool {
	return s != nil && (s.groups[name] || s.base.ServesGroup(name) || s.custom.servesGroup(name))
}

// BuiltIn reports whether a group has built-in kinds.
func (s *Set) BuiltIn(group string) bool {
	if s != nil && s.base != nil {
		return s.base.BuiltIn(group)
	}
	return s != nil && s.groups[group]
}

// BuiltIns returns the set without the kinds of definitions.
func (s *Set) BuiltIns() *Set {
	if s != nil && s.base != nil {
		return s.base.BuiltIns()
	}
	return s
}

// Serves reports whether a group version is served.
func (s *Set) Serves(gv schema.GroupVersion) bool {
	return s != nil && (s.versions[gv] || s.base.Serves(gv) || s.custom.serves(gv))
}
