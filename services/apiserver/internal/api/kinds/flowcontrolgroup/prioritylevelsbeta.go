package flowcontrolgroup

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

// betaPriorityLevelConfigurations returns the kind in v1beta3: zero shares of a limited level mean
// the default, unless an annotation preserves them.
func betaPriorityLevelConfigurations() *registry.Kind {
	kind := priorityLevelConfigurations()
	kind.Default = declare.Adapt(func(l *flowcontrolv1.PriorityLevelConfiguration) {
		_, keep := l.Annotations[flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey]
		limited := l.Spec.Limited
		if limited != nil && !keep && limited.NominalConcurrencyShares != nil && *limited.NominalConcurrencyShares == 0 {
			limited.NominalConcurrencyShares = nil
		}
		defaultPriorityLevel(l)
	})
	return kind
}
