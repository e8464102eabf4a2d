package build

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/controllers/crdinformer"
	"binnacle/services/apiserver/internal/crd/kind"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/status"
)

// registrations are the group versions of custom resources, which have APIServices.
type registrations struct {
	changed chan struct{}

	mu    sync.Mutex // a leaf
	known bool
	// complete reports whether every definition could be read.
	complete bool
	// serving is how many definitions serve a group version.
	serving map[schema.GroupVersion]int
	// wanted is what that makes; nil when it is to be made anew.
	wanted []bootstrap.APIService
}

func newRegistrations() *registrations {
	return &registrations{changed: make(chan struct{}, 1), serving: map[schema.GroupVersion]int{}}
}

// set takes up what definitions say otherwise. complete reports whether every definition
// could be read.
func (r *registrations) set(changed []crdinformer.Changed, complete bool) {
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

// count adds to those that serve the versions of a definition, and tells whether one is
// served now that was not, or the other way round.
func (r *registrations) count(d *kind.Definition, by int) (changed bool) {
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

// allKnown reports whether a group version that no definition serves is known to be gone.
func (r *registrations) allKnown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.complete
}

func (r *registrations) wake() {
	select {
	case r.changed <- struct{}{}:
	default: // it is to look already
	}
}

func (r *registrations) get() ([]bootstrap.APIService, bool) {
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

// registrations keep the APIServices of custom resources.
func (p *parts) registrations() task.Task {
	r := &bootstrap.Registrations{
		API: p.loopback,
		Live: func() (iter.Seq[*apiregistrationv1.APIService], error) {
			if !p.cache.Ready() {
				return nil, status.Reloading()
			}
			return p.remotes.Registered(), nil
		},
		Wanted: p.registered.get, Changed: p.registered.changed, Logger: p.log,
		Gone: func(ctx context.Context, group, version string) bool {
			gone := !p.follower.Newest(ctx, p.kinds).Serves(schema.GroupVersion{Group: group, Version: version})
			return gone && p.registered.allKnown()
		},
	}
	return task.Task{Name: "API services of custom resources", Run: r.Run}
}
