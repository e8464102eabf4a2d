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

// Defined is what one definition says: the served versions of a resource, or none
// when it is not served any more.
type Defined struct {
	Resource schema.GroupResource
	Versions []*Resource
}

// With is the set s in which some definitions say something else, as of a revision of
// the store. Built-in kinds win. It costs what changes, however many others there are.
// Of one set, others are made by one caller at a time.
func (s *Set) With(changed []Defined, revision int64) *Set {
	out := &Set{base: s, revision: revision}
	if s.custom != nil {
		out.base = s.base
	}
	out.custom = s.custom.with(out.base, changed)
	return out
}

// Custom are the kinds of the set that are not built in.
func (s *Set) Custom() []*registry.Kind {
	if s == nil || s.custom == nil {
		return nil
	}
	var kinds []*registry.Kind
	s.custom.resources.scan(func(_ name, versions []*Resource) {
		for _, r := range versions {
			kinds = append(kinds, r.Kind)
		}
	})
	return kinds
}
