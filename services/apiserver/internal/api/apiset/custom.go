package apiset

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
)

// Custom returns the resources of one definition: its served versions, which share a store. Their
// slots of kept encodings begin at slot.
func (b Builder) Custom(kinds []*registry.Kind, store *watchcache.Store, slot int) ([]*Resource, error) {
	family := b.Fields.Family(kinds)
	var out []*Resource
	for i, k := range kinds {
		coder, err := b.Codec.NewKindCodec(k)
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

// Definition is the result of one definition: the served versions of a resource, or none if it is no
// longer served.
type Definition struct {
	Resource schema.GroupResource
	Versions []*Resource
}

// WithDefinitions returns the set s with some definitions replaced, as of a revision of the store.
// Built-in kinds have priority. The cost depends on the number of changes only. Calls on the same
// set must not be concurrent.
func (s *Set) WithDefinitions(changed []Definition, revision int64) *Set {
	out := &Set{base: s, revision: revision}
	if s.custom != nil {
		out.base = s.base
	}
	out.custom = s.custom.withDefinitions(out.base, changed)
	return out
}

// Custom returns the kinds of the set that are not built in.
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
