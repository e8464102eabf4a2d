package app

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/bootstrap"
	"binnacle/services/apiserver/internal/customresource/kind"
)

// registrations are the group versions of custom resources, which have APIServices.
type registrations struct {
	changed chan struct{}

	mu     sync.Mutex // a leaf
	known  bool
	wanted []bootstrap.APIService
}

func newRegistrations() *registrations {
	return &registrations{changed: make(chan struct{}, 1)}
}

// set takes up what the definitions say.
func (r *registrations) set(all []*kind.Definition) {
	seen := map[schema.GroupVersion]bool{}
	var wanted []bootstrap.APIService
	for _, d := range all {
		for i := range d.Spec.Versions {
			v := &d.Spec.Versions[i]
			gv := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}
			if !v.Served || seen[gv] {
				continue
			}
			seen[gv] = true
			wanted = append(wanted, bootstrap.APIService{
				Group: gv.Group, Version: gv.Version, GroupPriority: customGroupPriority, VersionPriority: customVersionPriority,
			})
		}
	}
	byName := func(a, b bootstrap.APIService) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
	}
	slices.SortFunc(wanted, byName)
	r.mu.Lock()
	same := r.known && slices.Equal(r.wanted, wanted)
	r.known, r.wanted = true, wanted
	r.mu.Unlock()
	if !same {
		r.wake()
	}
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
	return r.wanted, r.known
}

// registrations keep the APIServices of custom resources.
func (p *parts) registrations() task.Task {
	r := &bootstrap.Registrations{
		API: p.loopback, Wanted: p.registered.get, Changed: p.registered.changed, Logger: p.log,
		Gone: func(ctx context.Context, group, version string) bool {
			return !p.follower.Newest(ctx, p.kinds).Serves(schema.GroupVersion{Group: group, Version: version})
		},
	}
	return task.Task{Name: "API services of custom resources", Run: r.Run}
}
