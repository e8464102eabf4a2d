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
		remote := remotes[gv]
		description := remote.description.Load()
		out = append(out, discovery.GroupVersion{
			Group:           gv.Group,
			Version:         gv.Version,
			GroupPriority:   int(remote.spec.GroupPriorityMinimum),
			VersionPriority: int(remote.spec.VersionPriority),
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
	for apiService := range a.Registered() {
		gv := schema.GroupVersion{Group: apiService.Spec.Group, Version: apiService.Spec.Version}
		if apiService.Spec.Service == nil && gv.Group != "" && !a.Local(gv) {
			out = append(out, discovery.GroupVersion{
				Group: gv.Group, Version: gv.Version, Unserved: true,
				GroupPriority: int(apiService.Spec.GroupPriorityMinimum), VersionPriority: int(apiService.Spec.VersionPriority),
			})
		}
	}
	return out
}
