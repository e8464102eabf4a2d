package autoregister

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/customdocs"
	"binnacle/services/apiserver/internal/crd/kind"
)

// CustomVersions tracks which group versions the definitions of custom resources serve. Each of
// them needs an APIService. It is safe for concurrent use.
type CustomVersions struct {
	changed chan struct{}

	mu    sync.Mutex // leaf lock
	known bool       // Set was called
	// complete reports whether every definition was readable.
	complete bool
	// serving is the number of definitions that serve a group version.
	serving map[schema.GroupVersion]int
	// desired caches the result of Desired; nil after a change.
	desired []APIService
}

// NewCustomVersions returns an empty set.
func NewCustomVersions() *CustomVersions {
	return &CustomVersions{changed: make(chan struct{}, 1), serving: map[schema.GroupVersion]int{}}
}

// Changed returns a channel that receives a value after a change of the group versions, and after
// Notify. Several changes may cause a single value.
func (r *CustomVersions) Changed() <-chan struct{} { return r.changed }

// Set applies changed definitions. complete reports whether every definition was readable.
func (r *CustomVersions) Set(changed []kind.CRDChange, complete bool) {
	r.mu.Lock()
	changedAny := !r.known || r.complete != complete
	r.known = true
	r.complete = complete
	for _, c := range changed {
		added := r.count(c.New, 1)
		removed := r.count(c.Old, -1)
		if added || removed {
			changedAny = true
			r.desired = nil
		}
	}
	r.mu.Unlock()
	if changedAny {
		r.Notify()
	}
}

// count adds delta (1 or -1) to the number of definitions for each version that definition
// serves. definition may be nil. It reports whether the set of served group versions changed. The caller holds mu.
func (r *CustomVersions) count(definition *kind.CRD, delta int) (changed bool) {
	if definition == nil {
		return false
	}
	for i := range definition.Spec.Versions {
		version := &definition.Spec.Versions[i]
		if !version.Served {
			continue
		}
		groupVersion := schema.GroupVersion{Group: definition.Spec.Group, Version: version.Name}
		before := r.serving[groupVersion]
		after := before + delta
		r.serving[groupVersion] = after
		if after == 0 {
			delete(r.serving, groupVersion)
		}
		changed = changed || before == 0 || after == 0
	}
	return changed
}

// AllKnown reports whether all definitions are known and readable. Only then does the absence of a
// group version mean that no definition serves it.
func (r *CustomVersions) AllKnown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.complete
}

// Notify makes the channel of Changed receive a value.
func (r *CustomVersions) Notify() {
	select {
	case r.changed <- struct{}{}:
	default: // a notification is pending
	}
}

// Desired returns the APIServices that should exist, sorted by group and version. It returns false
// before the first Set. Callers must not change the result.
func (r *CustomVersions) Desired() ([]APIService, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.desired == nil {
		for gv := range r.serving {
			r.desired = append(r.desired, APIService{
				Group: gv.Group, Version: gv.Version, GroupPriority: customdocs.GroupPriority, VersionPriority: customdocs.VersionPriority,
			})
		}
		slices.SortFunc(r.desired, func(a, b APIService) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
		})
	}
	return r.desired, r.known
}
