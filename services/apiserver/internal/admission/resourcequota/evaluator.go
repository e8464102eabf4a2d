package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
)

// Gates are the feature gates that change what is counted.
type Gates struct {
	// InPlaceResize counts what a pod has beside what it asks for, PodLevel what
	// it asks for as a whole, Devices what claims ask for of device classes, and
	// AttributesClasses lets quotas select claims by them.
	InPlaceResize, PodLevel, Devices, AttributesClasses bool
}

type requirement = corev1.ScopedResourceSelectorRequirement

// evaluator measures the objects of one resource.
type evaluator struct {
	// handles tells whether an operation may change the usage.
	handles func(*admission.Request) bool
	// counts tells the names of quotas that concern the resource.
	counts func(corev1.ResourceName) bool
	// usage is what an object uses.
	usage func(runtime.Object) (amounts, error)
	// inScope tells whether an object is in a scope; nil: in none.
	inScope func(requirement, runtime.Object) (bool, error)
	// covers tells that a limited scope has to be covered by a quota.
	covers bool
	// constraints refuses objects that do not say what is limited; nil: none.
	constraints func(required names, obj runtime.Object) error
}

// aliases are names of counts from before there were counts of everything.
func aliases() map[schema.GroupResource]corev1.ResourceName {
	return map[schema.GroupResource]corev1.ResourceName{
		{Resource: "configmaps"}:             corev1.ResourceConfigMaps,
		{Resource: "resourcequotas"}:         corev1.ResourceQuotas,
		{Resource: "replicationcontrollers"}: corev1.ResourceReplicationControllers,
		{Resource: "secrets"}:                corev1.ResourceSecrets,
	}
}

// countName is the name of the count of a resource.
func countName(r schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName("count/" + r.String())
}

func (p *Plugin) evaluator(r schema.GroupResource) *evaluator {
	if e := p.evaluators[r]; e != nil {
		return e
	}
	return countOf(r, "")
}

// countOf counts objects, whatever they are.
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

// ignored tells the resources that are not counted.
func ignored(r *admission.Request) bool {
	return r.Resource.Virtual || r.Is("", "events") || r.Is("", "namespaces")
}

// selectors are the scopes of a quota, however it tells them.
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

// scopesOf are those of the requirements that an object fulfils.
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

// matches tells whether a quota limits something of an object.
func (e *evaluator) matches(q *corev1.ResourceQuota, obj runtime.Object) (bool, error) {
	all := selectors(q)
	in, err := e.scopesOf(obj, all)
	return len(in) == len(all) && len(pick(q.Status.Hard, e.counts)) > 0, err
}
