package quota

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Gates holds the feature gates that affect usage.
type Gates struct {
	// InPlaceResize also counts the allocated resources of a pod. PodLevel counts the resources of
	// whole pods. Devices counts the devices of claims by class. AttributesClasses lets quotas
	// select claims by volume attributes class.
	InPlaceResize, PodLevel, Devices, AttributesClasses bool
}

// Requirement is a scope that an object must be in.
type Requirement = corev1.ScopedResourceSelectorRequirement

// Evaluator computes the usage of the objects of one resource.
type Evaluator struct {
	// MatchesResource reports whether a name in a quota applies to the resource.
	MatchesResource func(corev1.ResourceName) bool
	// Usage returns the usage of an object.
	Usage func(runtime.Object) (Amounts, error)
	// InScope reports whether an object is in a scope. If it is nil, an object is in no scope.
	InScope func(Requirement, runtime.Object) (bool, error)
	// Uniform states that all objects have the same usage, so that Usage accepts nil.
	Uniform bool
}

// Evaluators returns the evaluators of the resources whose usage is more than CountOf with no
// alias. now is the clock that decides whether a deleted pod has ended.
func Evaluators(gates Gates, now func() time.Time) map[schema.GroupResource]*Evaluator {
	evaluators := map[schema.GroupResource]*Evaluator{
		{Resource: "pods"}:                   podEvaluator(gates, now),
		{Resource: "services"}:               serviceEvaluator(),
		{Resource: "persistentvolumeclaims"}: claimEvaluator(gates),
	}
	if gates.Devices {
		evaluators[resourceClaims()] = deviceEvaluator()
	}
	for r, alias := range legacyCountNames() {
		evaluators[r] = CountOf(r, alias)
	}
	return evaluators
}

// legacyCountNames returns the names of counts that are older than generic object counts.
func legacyCountNames() map[schema.GroupResource]corev1.ResourceName {
	return map[schema.GroupResource]corev1.ResourceName{
		{Resource: "configmaps"}:             corev1.ResourceConfigMaps,
		{Resource: "resourcequotas"}:         corev1.ResourceQuotas,
		{Resource: "replicationcontrollers"}: corev1.ResourceReplicationControllers,
		{Resource: "secrets"}:                corev1.ResourceSecrets,
	}
}

// countName returns the name of the object count of a resource.
func countName(resource schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName("count/" + resource.String())
}

// CountOf returns an evaluator that counts objects of any resource. alias is another name of the
// count, or "".
func CountOf(resource schema.GroupResource, alias corev1.ResourceName) *Evaluator {
	count := countName(resource)
	return &Evaluator{
		Uniform: true,
		MatchesResource: func(name corev1.ResourceName) bool {
			return name == count || alias != "" && name == alias
		},
		Usage: func(runtime.Object) (Amounts, error) {
			used := Amounts{count: OneQuantity()}
			if alias != "" {
				used[alias] = OneQuantity()
			}
			return used, nil
		},
	}
}

// Scopes returns the scopes of a quota from both of its fields.
func Scopes(resourceQuota *corev1.ResourceQuota) []Requirement {
	var requirements []Requirement
	for _, s := range resourceQuota.Spec.Scopes {
		requirements = append(requirements, Requirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if resourceQuota.Spec.ScopeSelector != nil {
		requirements = append(requirements, resourceQuota.Spec.ScopeSelector.MatchExpressions...)
	}
	return requirements
}

// ScopesOf returns the requirements that an object meets.
func (e *Evaluator) ScopesOf(obj runtime.Object, requirements []Requirement) ([]Requirement, error) {
	var met []Requirement
	for _, requirement := range requirements {
		if e.InScope == nil {
			break
		}
		ok, err := e.InScope(requirement, obj)
		if err != nil {
			return nil, err
		}
		if ok {
			met = append(met, requirement)
		}
	}
	return met, nil
}
