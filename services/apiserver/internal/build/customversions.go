package build

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/crd/kind"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/status"
)

// customVersions tracks the group versions of custom resources, which have APIServices.
type customVersions struct {
	changed chan struct{}

	mu    sync.Mutex // a leaf
	known bool
	// complete reports whether every definition was readable.
	complete bool
	// serving counts the definitions that serve a group version.
	serving map[schema.GroupVersion]int
	// wanted holds the resulting APIServices; nil after a change.
	wanted []bootstrap.APIService
}

// newCustomVersions follows definitions and maintains the APIServices of their group versions.
func newCustomVersions(b *base, k *caches, sets *apiSets, informer *crdinformer.Follower, remotes *aggregation.Aggregator) *customVersions {
	v := &customVersions{changed: make(chan struct{}, 1), serving: map[schema.GroupVersion]int{}}
	informer.OnSwapped(func(s kind.Update) { v.set(s.Changed, s.Complete) })
	registrations := &bootstrap.Registrations{
		API: sets.client,
		Live: func() (iter.Seq[*apiregistrationv1.APIService], error) {
			if !k.cache.Ready() {
				return nil, status.Reloading()
			}
			return remotes.Registered(), nil
		},
		Wanted: v.get, Changed: v.changed, Logger: b.log,
		Gone: func(ctx context.Context, group, version string) bool {
			gone := !informer.Newest(ctx, sets.kinds).Serves(schema.GroupVersion{Group: group, Version: version})
			return gone && v.allKnown()
		},
	}
	b.life.whileServing("API services of custom resources", registrations.Run)
	return v
}

// set applies changed definitions. complete reports whether every definition was readable.
func (r *customVersions) set(changed []kind.Change, complete bool) {
	r.mu.Lock()
	same := r.known && r.complete == complete
	r.known, r.complete = true, complete
	for _, c := range changed {
		if come, gone := r.count(c.Now, 1), r.count(c.Before, -1); come || gone {
			same, r.wanted = false, nil
		}
	}
	r.mu.Unlock()
	if !same {
		r.wake()
	}
}

// count adds by to the counts of the versions of a definition. It reports whether the set of served
// versions changed.
func (r *customVersions) count(d *kind.Definition, by int) (changed bool) {
	if d == nil {
		return false
	}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		if !v.Served {
			continue
		}
		gv := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}
		was := r.serving[gv]
		if r.serving[gv] = was + by; was+by == 0 {
			delete(r.serving, gv)
		}
		changed = changed || was == 0 || was+by == 0
	}
	return changed
}

// allKnown reports whether the absence of a group version means that no definition serves it.
func (r *customVersions) allKnown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.complete
}

func (r *customVersions) wake() {
	select {
	case r.changed <- struct{}{}:
	default: // a notification is pending
	}
}

func (r *customVersions) get() ([]bootstrap.APIService, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wanted == nil {
		for gv := range r.serving {
			r.wanted = append(r.wanted, bootstrap.APIService{
				Group: gv.Group, Version: gv.Version, GroupPriority: customGroupPriority, VersionPriority: customVersionPriority,
			})
		}
		slices.SortFunc(r.wanted, func(a, b bootstrap.APIService) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
		})
	}
	return r.wanted, r.known
}
