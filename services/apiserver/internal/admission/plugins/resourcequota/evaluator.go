package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
)

// Gates holds the feature gates that affect usage.
type Gates struct {
	// InPlaceResize also counts the allocated resources of a pod. PodLevel counts the resources of
	// whole pods. Devices counts the devices of claims by class. AttributesClasses lets quotas
	// select claims by volume attributes class.
	InPlaceResize, PodLevel, Devices, AttributesClasses bool
}

type requirement = corev1.ScopedResourceSelectorRequirement

// evaluator computes the usage of the objects of one resource.
type evaluator struct {
	// handles reports whether an operation may change the usage.
	handles func(*admission.Request) bool
	// counts reports whether a name in a quota applies to the resource.
	counts func(corev1.ResourceName) bool
	// usage returns the usage of an object.
	usage func(runtime.Object) (amounts, error)
	// inScope reports whether an object is in a scope. If it is nil, an object is in no scope.
	inScope func(requirement, runtime.Object) (bool, error)
	// covers states that a limited scope must be covered by a quota.
	covers bool
	// constraints rejects objects that do not set limited resources. It may be nil.
	constraints func(required names, obj runtime.Object) error
}

// aliases returns the names of counts that are older than generic object counts.
func aliases() map[schema.GroupResource]corev1.ResourceName {
	return map[schema.GroupResource]corev1.ResourceName{
		{Resource: "configmaps"}:             corev1.ResourceConfigMaps,
		{Resource: "resourcequotas"}:         corev1.ResourceQuotas,
		{Resource: "replicationcontrollers"}: corev1.ResourceReplicationControllers,
		{Resource: "secrets"}:                corev1.ResourceSecrets,
	}
}

// countName returns the name of the object count of a resource.
func countName(r schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName("count/" + r.String())
}

func (p *Plugin) evaluator(r schema.GroupResource) *evaluator {
	if e := p.evaluators[r]; e != nil {
		return e
	}
	return countOf(r, "")
}

// countOf returns an evaluator that counts objects of any resource.
func countOf(r schema.GroupResource, alias corev1.ResourceName) *evaluator {
	count := countName(r)
	return &evaluator{
		handles: func(r *admission.Request) bool { return r.Operation == admission.Create && r.Subresource == "" },
		counts: func(name corev1.ResourceName) bool {
			return name == count || alias != "" && name == alias
		},
		usage: func(runtime.Object) (amounts, error) {
			used := amounts{count: one()}
			if alias != "" {
				used[alias] = one()
			}
			return used, nil
		},
	}
}

func evaluators(g Gates, now func() int64) map[schema.GroupResource]*evaluator {
	all := map[schema.GroupResource]*evaluator{
		{Resource: "pods"}:                   podEvaluator(g, now),
		{Resource: "services"}:               serviceEvaluator(),
		{Resource: "persistentvolumeclaims"}: claimEvaluator(g),
	}
	if g.Devices {
		all[resourceClaims()] = deviceEvaluator()
	}
	for r, alias := range aliases() {
		all[r] = countOf(r, alias)
	}
	return all
}

// ignored reports whether the request's resource is not counted.
func ignored(r *admission.Request) bool {
	return r.Resource.Virtual || r.Is("", "events") || r.Is("", "namespaces")
}

// selectors returns the scopes of a quota from both of its fields.
func selectors(q *corev1.ResourceQuota) []requirement {
	var all []requirement
	for _, s := range q.Spec.Scopes {
		all = append(all, requirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		all = append(all, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return all
}

// scopesOf returns the requirements that an object meets.
func (e *evaluator) scopesOf(obj runtime.Object, all []requirement) ([]requirement, error) {
	var in []requirement
	for _, s := range all {
		if e.inScope == nil {
			break
		}
		ok, err := e.inScope(s, obj)
		if err != nil {
			return nil, err
		}
		if ok {
			in = append(in, s)
		}
	}
	return in, nil
}

// matches reports whether a quota limits any resource of an object.
func (e *evaluator) matches(q *corev1.ResourceQuota, obj runtime.Object) (bool, error) {
	all := selectors(q)
	in, err := e.scopesOf(obj, all)
	return len(in) == len(all) && len(pick(q.Status.Hard, e.counts)) > 0, err
}
