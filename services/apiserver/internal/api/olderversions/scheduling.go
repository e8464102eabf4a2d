package olderversions

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"

	"binnacle/services/apiserver/internal/registry/declare"
)

const defaultShares = 30

// priorityLevelOfBeta2 converts v1beta2, or v1beta1, which has the same fields. In both, 0 shares
// mean the default.
func priorityLevelOfBeta2(old *flowcontrolv1beta2.PriorityLevelConfiguration) (*flowcontrolv1.PriorityLevelConfiguration, error) {
	if l := old.Spec.Limited; l != nil {
		declare.SetDefault(&l.AssuredConcurrencyShares, defaultShares)
	}
	out := &flowcontrolv1.PriorityLevelConfiguration{}
	return out, sameNumbers(old, out)
}

// priorityLevelOfBeta3 converts v1beta3. There 0 shares mean the default unless an annotation
// states that they are intended.
func priorityLevelOfBeta3(old *flowcontrolv1beta3.PriorityLevelConfiguration) (*flowcontrolv1.PriorityLevelConfiguration, error) {
	_, zero := old.Annotations[flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey]
	if l := old.Spec.Limited; l != nil && !zero {
		declare.SetDefault(&l.NominalConcurrencyShares, defaultShares)
	}
	delete(old.Annotations, flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey)
	out := &flowcontrolv1.PriorityLevelConfiguration{}
	return out, sameNumbers(old, out)
}

func runtimeClass(old *nodev1alpha1.RuntimeClass) (*nodev1.RuntimeClass, error) {
	r := &nodev1.RuntimeClass{ObjectMeta: old.ObjectMeta, Handler: old.Spec.RuntimeHandler}
	if o := old.Spec.Overhead; o != nil {
		r.Overhead = &nodev1.Overhead{PodFixed: o.PodFixed}
	}
	if s := old.Spec.Scheduling; s != nil {
		r.Scheduling = &nodev1.Scheduling{NodeSelector: s.NodeSelector, Tolerations: s.Tolerations}
	}
	return r, nil
}
