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

// Resource is a kind in one version as it is served, with everything that its handlers need.
type Resource struct {
	*registry.Kind
	Coder *codec.KindCodec
	// Store is the watch cache of the objects. Their keys start with Prefix, which ends with a
	// slash. Both are empty for kinds that store nothing.
	Store  *watchcache.Store
	Prefix string
	// Preconditions holds the preconditions of creations: the definition of a custom resource must
	// still exist.
	Preconditions []storage.Precondition
	// Slot is the slot for the cached encodings of this version in the entries of Store. Kinds that
	// share a store have different slots.
	Slot int
	// Variant identifies the selectable fields of this kind; see watchcache.ResourceConfig.
	Variant string
	// DefinitionContext is canceled when the definition of a custom resource changes, which
	// terminates its watches. It is nil for built-in kinds.
	DefinitionContext context.Context
	// owners holds the field managers by the name of the subresource; "" is for the object itself.
	owners map[string]*apply.Manager
}

// ErrGone means that the kind is no longer served, or is served differently than when the request
// began.
var ErrGone = errors.New("the kind of the object is not served any more")

// ErrChanged means that the selectable fields of the kind have changed since the request began.
var ErrChanged = errors.New("the kind of the object has changed")

// MaxSlots is the number of slots. Package objects stores a slot with each cached encoding and must
// be able to represent it. A cluster does not use that many slots in years, so that a slot is not
// used again while encodings of its earlier use exist.
const MaxSlots = 1 << 28

// Key returns the key of an object in the store.
func (r *Resource) Key(namespace, name string) string {
	if r.Namespaced {
		return r.Prefix + namespace + "/" + name
	}
	return r.Prefix + name
}

// Owner returns the field manager for writes to a subresource, or to the object itself if sub is
// nil.
func (r *Resource) Owner(sub *registry.Subresource) *apply.Manager {
	if sub == nil {
		return r.owners[""]
	}
	return r.owners[sub.Name]
}

// KeyPrefix returns the prefix of the keys of a kind's objects.
func KeyPrefix(root string, k *registry.Kind) string { return root + "/" + k.Stored.Prefix + "/" }

// Builder builds sets and resources. The zero value builds resources that have only their Kind.
type Builder struct {
	Codec *codec.Codec
	Cache *watchcache.Cache
	// Elsewhere holds the watch caches of other etcd clusters, by the key prefixes that they serve.
	Elsewhere map[string]*watchcache.Cache
	// Root is the common prefix of all keys, without a trailing slash.
	Root string
	// Fields creates the field managers.
	Fields *apply.Fields
}

// Set is the set of kinds that are served at one time. It is immutable. A nil Set serves nothing.
//
// A set of built-in kinds has neither base nor custom. A set with custom kinds has both, and its
// maps are empty: base holds the built-in kinds.
type Set struct {
	base   *Set
	custom *custom
	// revision is the revision of the store at which the set reflects the definitions.
	revision int64

	byGVR    map[schema.GroupVersionResource]*Resource
	builtIn  map[schema.GroupResource]bool
	stored   map[schema.GroupVersionKind]*Resource // resources that have a store, by kind
	groups   map[string]bool
	versions map[schema.GroupVersion]bool
}

// Set returns the set of the kinds in a catalog. revision is the result of Set.Revision.
func (b Builder) Set(catalog *registry.Catalog, revision int64) *Set {
	set := &Set{
		revision: revision,
		byGVR:    map[schema.GroupVersionResource]*Resource{},
		builtIn:  map[schema.GroupResource]bool{},
		stored:   map[schema.GroupVersionKind]*Resource{},
		groups:   map[string]bool{},
		versions: map[schema.GroupVersion]bool{},
	}
	for _, g := range catalog.Groups() {
		set.groups[g.Name] = true
		for _, v := range g.Versions {
			set.versions[schema.GroupVersion{Group: g.Name, Version: v}] = true
		}
	}
	slots := map[string]int{} // next free slot by key prefix
	for _, kind := range catalog.Kinds() {
		resource := b.newResource(kind)
		if resource.Store != nil {
			resource.Slot = slots[resource.Prefix]
			slots[resource.Prefix]++
			set.stored[kind.GVK()] = resource
		}
		set.byGVR[kind.GVR()] = resource
		set.builtIn[kind.GroupResource()] = true
	}
	return set
}

// newResource returns the resource of a built-in kind.
func (b Builder) newResource(kind *registry.Kind) *Resource {
	resource := &Resource{Kind: kind}
	if b.Codec != nil {
		resource.Coder = b.Codec.ForKind(kind)
	}
	if b.Cache != nil && !kind.Virtual {
		resource.Prefix = KeyPrefix(b.Root, kind)
		cache := b.Cache
		if other := b.Elsewhere[resource.Prefix]; other != nil {
			cache = other
		}
		resource.Store = cache.Store(resource.Prefix)
	}
	if b.Fields != nil {
		resource.owners = map[string]*apply.Manager{"": b.Fields.Manager(kind, nil)}
		for i := range kind.Subresources {
			sub := &kind.Subresources[i]
			resource.owners[sub.Name] = b.Fields.Manager(kind, sub)
		}
	}
	return resource
}

// Filter returns the subset of s with the kinds in a catalog. s must have all of them.
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

// Revision returns the revision of the store at which the set reflects the definitions.
func (s *Set) Revision() int64 { return s.revision }

// Resource returns the resource that a path names, or nil if it is not served.
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

// StoredKind returns the resource of a kind. It returns nil if the kind is not served or its
// objects are not stored.
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

// Family returns all versions in which the objects of a kind are served: the resources with the
// same key prefix, sorted. A virtual kind has no objects, and its family is only the kind itself.
func (s *Set) Family(kind *registry.Kind) []*Resource {
	isVersion := func(r *Resource) bool {
		return r.Stored.Prefix == kind.Stored.Prefix && r.Virtual == kind.Virtual && (!kind.Virtual || r.Kind == kind)
	}
	var out []*Resource
	for set := s; set != nil; set = set.base {
		for _, r := range set.byGVR {
			if isVersion(r) {
				out = append(out, r)
			}
		}
		for _, r := range set.custom.versionsOf(kind.Group, kind.Resource) {
			if isVersion(r) {
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

// BuiltIns returns the set without custom kinds.
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
