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
	// handles reports whether a request may change the usage.
	handles func(*admission.Request) bool
	// requiresScopes enables the check of LimitedResource.MatchScopes.
	requiresScopes bool
	// constraints returns an error if an object does not set the resources that a quota limits. It
	// may be nil.
	constraints func(required names, obj runtime.Object) error
}

// evaluatorFor returns the evaluator of a resource. For most resources it only counts objects.
func (p *Plugin) evaluatorFor(groupResource schema.GroupResource) *evaluator {
	if e := p.evaluators[groupResource]; e != nil {
		return e
	}
	return &evaluator{Evaluator: quota.CountOf(groupResource, ""), handles: creates}
}

// newEvaluators returns the evaluators of the resources whose usage is more than a count of
// objects.
func newEvaluators(gates quota.Gates, now func() time.Time) map[schema.GroupResource]*evaluator {
	all := map[schema.GroupResource]*evaluator{}
	for r, e := range quota.Evaluators(gates, now) {
		all[r] = &evaluator{Evaluator: e, handles: creates}
		if !e.Uniform {
			all[r].handles = createsOrUpdates
		}
	}
	pods := all[schema.GroupResource{Resource: "pods"}]
	pods.handles = handlesPod
	pods.requiresScopes = true
	pods.constraints = podConstraints(gates)
	claims := all[schema.GroupResource{Resource: "persistentvolumeclaims"}]
	claims.handles = handlesClaim
	claims.requiresScopes = gates.AttributesClasses
	return all
}

func creates(r *admission.Request) bool {
	return r.Operation == admission.Create && r.Subresource == ""
}

func createsOrUpdates(r *admission.Request) bool {
	return r.Subresource == "" && (r.Operation == admission.Create || r.Operation == admission.Update)
}

// handlesClaim reports whether a request may change the usage of a volume claim. A status update
// may, because it reports the progress of a resize.
func handlesClaim(r *admission.Request) bool {
	return createsOrUpdates(r) || r.Subresource == "status" && r.Operation == admission.Update
}

// isIgnored reports whether no quota counts the resource of a request.
func isIgnored(r *admission.Request) bool {
	return r.Resource.Virtual || r.IsResource("", "events") || r.IsResource("", "namespaces")
}

// matches reports whether an object is in all scopes of a quota, and the quota limits a resource
// that objects of this kind use.
func (e *evaluator) matches(q *corev1.ResourceQuota, obj runtime.Object) (bool, error) {
	all := quota.Scopes(q)
	matched, err := e.ScopesOf(obj, all)
	return len(matched) == len(all) && len(quota.SelectNames(q.Status.Hard, e.MatchesResource)) > 0, err
}
