package olderversions

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"

	"binnacle/services/apiserver/internal/registry/declare"
)

// defaultShares is the default of the concurrency shares of a limited priority level.
const defaultShares = 30

// convertPriorityLevelBeta2 converts a PriorityLevelConfiguration of v1beta2, or of v1beta1, which
// has the same fields. In both, 0 shares mean the default.
func convertPriorityLevelBeta2(
	old *flowcontrolv1beta2.PriorityLevelConfiguration,
) (*flowcontrolv1.PriorityLevelConfiguration, error) {
	if limited := old.Spec.Limited; limited != nil {
		declare.SetDefault(&limited.AssuredConcurrencyShares, defaultShares)
	}
	out := &flowcontrolv1.PriorityLevelConfiguration{}
	return out, copyByFieldNumber(old, out)
}

// convertPriorityLevelBeta3 converts a PriorityLevelConfiguration of v1beta3. In that version, 0
// shares mean the default, unless an annotation says that they mean 0.
func convertPriorityLevelBeta3(
	old *flowcontrolv1beta3.PriorityLevelConfiguration,
) (*flowcontrolv1.PriorityLevelConfiguration, error) {
	_, preserveZero := old.Annotations[flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey]
	if limited := old.Spec.Limited; limited != nil && !preserveZero {
		declare.SetDefault(&limited.NominalConcurrencyShares, defaultShares)
	}
	delete(old.Annotations, flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey)
	out := &flowcontrolv1.PriorityLevelConfiguration{}
	return out, copyByFieldNumber(old, out)
}

// convertRuntimeClass converts a RuntimeClass of node.k8s.io/v1alpha1, which has the fields of v1
// in a spec.
func convertRuntimeClass(old *nodev1alpha1.RuntimeClass) (*nodev1.RuntimeClass, error) {
	runtimeClass := &nodev1.RuntimeClass{ObjectMeta: old.ObjectMeta, Handler: old.Spec.RuntimeHandler}
	if overhead := old.Spec.Overhead; overhead != nil {
		runtimeClass.Overhead = &nodev1.Overhead{PodFixed: overhead.PodFixed}
	}
	if scheduling := old.Spec.Scheduling; scheduling != nil {
		runtimeClass.Scheduling = &nodev1.Scheduling{NodeSelector: scheduling.NodeSelector, Tolerations: scheduling.Tolerations}
	}
	return runtimeClass, nil
}
