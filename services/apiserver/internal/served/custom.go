package served

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/apply"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/watchcache"
)

// Custom makes the resources of one definition: its served versions, which share
// a store. Slots of kept encodings begin at slot.
func (b Builder) Custom(kinds []*registry.Kind, store *watchcache.Store, slot int) ([]*Resource, error) {
	family := b.Fields.Family(kinds)
	var out []*Resource
	for i, k := range kinds {
		coder, err := b.Codec.Custom(k)
		if err != nil {
			return nil, err
		}
		r := &Resource{
			Kind: k, Coder: coder, Store: store, Prefix: KeyPrefix(b.Root, k), Slot: slot + i,
			owners: map[string]*apply.Manager{"": family.Manager(k, nil)},
		}
		for j := range k.Subresources {
			sub := &k.Subresources[j]
			r.owners[sub.Name] = family.Manager(k, sub)
		}
		out = append(out, r)
	}
	return out, nil
}

// With is the set of base's kinds and those given, as they are defined at a
// revision of the store. Built-in kinds win.
func (s *Set) With(custom []*Resource, revision int64) *Set {
	out := &Set{
		base: s, revision: revision, byGVR: make(map[schema.GroupVersionResource]*Resource, len(custom)),
		stored: make(map[schema.GroupVersionKind]*Resource, len(custom)),
		groups: map[string]bool{}, versions: map[schema.GroupVersion]bool{},
	}
	for _, r := range custom {
		if s.Resource(r.GVR()) != nil {
			continue
		}
		out.byGVR[r.GVR()], out.stored[r.GVK()] = r, r
		out.groups[r.Group], out.versions[r.GroupVersion()] = true, true
	}
	return out
}

// Custom are the kinds of the set that are not built in.
func (s *Set) Custom() []*registry.Kind {
	if s == nil || s.base == nil {
		return nil
	}
	kinds := make([]*registry.Kind, 0, len(s.byGVR))
	for _, r := range s.byGVR {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}
