package aggregation

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/discovery"
)

// Versions returns the group versions of extension servers for discovery.
func (a *Aggregator) Versions() []discovery.GroupVersion {
	a.Metrics.aggregated.Inc()
	remotes := a.currentDirectory().remotes
	var out []discovery.GroupVersion
	for _, gv := range slices.SortedFunc(maps.Keys(remotes), func(x, y schema.GroupVersion) int {
		return strings.Compare(x.String(), y.String())
	}) {
		if a.Local(gv) {
			continue
		}
		r := remotes[gv]
		description := r.description.Load()
		out = append(out, discovery.GroupVersion{
			Group:           gv.Group,
			Version:         gv.Version,
			GroupPriority:   int(r.spec.GroupPriorityMinimum),
			VersionPriority: int(r.spec.VersionPriority),
			Resources:       description.resources,
			Aggregated:      description.aggregated,
			Stale:           description.stale,
		})
	}
	return out
}

// LocalGroupVersions returns, for discovery, the group versions of APIServices without a service,
// except for built-in ones. Custom resources may serve them, or nothing does.
func (a *Aggregator) LocalGroupVersions() []discovery.GroupVersion {
	var out []discovery.GroupVersion
	for s := range a.Registered() {
		gv := schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
		if s.Spec.Service == nil && gv.Group != "" && !a.Local(gv) {
			out = append(out, discovery.GroupVersion{
				Group: gv.Group, Version: gv.Version, Unserved: true,
				GroupPriority: int(s.Spec.GroupPriorityMinimum), VersionPriority: int(s.Spec.VersionPriority),
			})
		}
	}
	return out
}
