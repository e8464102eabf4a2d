package apiset

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
)

// Custom returns the resources of one definition: its served versions, which share a store. kinds
// are these versions. The resources get consecutive slots, starting with slot; see Resource.Slot.
func (b Builder) Custom(kinds []*registry.Kind, store *watchcache.Store, slot int) ([]*Resource, error) {
	family := b.Fields.Family(kinds)
	var out []*Resource
	for i, kind := range kinds {
		coder, err := b.Codec.NewKindCodec(kind)
		if err != nil {
			return nil, err
		}
		resource := &Resource{
			Kind: kind, Coder: coder, Store: store, Prefix: KeyPrefix(b.Root, kind), Slot: slot + i,
			owners: map[string]*apply.Manager{"": family.Manager(kind, nil)},
		}
		for j := range kind.Subresources {
			sub := &kind.Subresources[j]
			resource.owners[sub.Name] = family.Manager(kind, sub)
		}
		out = append(out, resource)
	}
	return out, nil
}

// Definition holds the served versions of the resource that one definition defines. Versions is
// empty if the resource is no longer served.
type Definition struct {
	Resource schema.GroupResource
	Versions []*Resource
}

// WithDefinitions returns the set s with the changed definitions replaced. revision is the revision
// of the store that the new set reflects. A definition cannot replace a built-in kind. The cost
// depends only on the number of changed definitions. Calls on the same set must not be concurrent.
func (s *Set) WithDefinitions(changed []Definition, revision int64) *Set {
	out := &Set{base: s, revision: revision}
	if s.custom != nil {
		out.base = s.base
	}
	out.custom = s.custom.withDefinitions(out.base, changed)
	return out
}

// Custom returns the kinds of custom resources in the set.
func (s *Set) Custom() []*registry.Kind {
	if s == nil || s.custom == nil {
		return nil
	}
	var kinds []*registry.Kind
	s.custom.resources.Scan(func(i item[[]*Resource]) bool {
		for _, r := range i.value {
			kinds = append(kinds, r.Kind)
		}
		return true
	})
	return kinds
}
