package resourcequota

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/quota"
	"binnacle/services/apiserver/internal/admission"
)

// evaluator applies quotas to requests for one resource.
type evaluator struct {
	*quota.Evaluator
	// handles reports whether an operation may change the usage.
	handles func(*admission.Request) bool
	// requiresScopes reports whether a limited scope requires a quota with that scope.
	requiresScopes bool
	// constraints rejects objects that do not set limited resources. It may be nil.
	constraints func(required names, obj runtime.Object) error
}

// evaluator returns the evaluator of a resource. By default it counts objects.
func (p *Plugin) evaluator(r schema.GroupResource) *evaluator {
	if e := p.evaluators[r]; e != nil {
		return e
	}
	return &evaluator{Evaluator: quota.CountOf(r, ""), handles: creates}
}

// evaluators returns the evaluators of the resources that are measured, not only counted.
func evaluators(g quota.Gates, now func() time.Time) map[schema.GroupResource]*evaluator {
	all := map[schema.GroupResource]*evaluator{}
	for r, e := range quota.Evaluators(g, now) {
		all[r] = &evaluator{Evaluator: e, handles: creates}
		if !e.Uniform {
			all[r].handles = createsOrUpdates
		}
	}
	pods := all[schema.GroupResource{Resource: "pods"}]
	pods.handles, pods.requiresScopes, pods.constraints = handlesPod, true, podConstraints(g)
	claims := all[schema.GroupResource{Resource: "persistentvolumeclaims"}]
	claims.handles = handlesClaim
	claims.requiresScopes = g.AttributesClasses
	return all
}

func creates(r *admission.Request) bool {
	return r.Operation == admission.Create && r.Subresource == ""
}

func createsOrUpdates(r *admission.Request) bool {
	return r.Subresource == "" && (r.Operation == admission.Create || r.Operation == admission.Update)
}

// handlesClaim reports whether an operation may change usage. Claims may grow, also while they are
// resized.
func handlesClaim(r *admission.Request) bool {
	return createsOrUpdates(r) || r.Subresource == "status" && r.Operation == admission.Update
}

// isIgnored reports whether the request's resource is not counted.
func isIgnored(r *admission.Request) bool {
	return r.Resource.Virtual || r.IsResource("", "events") || r.IsResource("", "namespaces")
}

// matches reports whether a quota limits any resource of an object.
func (e *evaluator) matches(q *corev1.ResourceQuota, obj runtime.Object) (bool, error) {
	all := quota.Scopes(q)
	matched, err := e.ScopesOf(obj, all)
	return len(matched) == len(all) && len(quota.SelectNames(q.Status.Hard, e.MatchesResource)) > 0, err
}
