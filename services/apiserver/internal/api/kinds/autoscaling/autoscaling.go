// Package autoscaling declares the HorizontalPodAutoscaler in both versions of the autoscaling
// group. It is stored as v2. Annotations of the v1 form hold the values for which v1 has no fields.
// The package has no state. Kinds returns new values for the catalog of built-in kinds.
package autoscaling

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/registry"
)

const group = autoscalingv2.GroupName

// Kinds returns the kinds of the group, the preferred version first.
func Kinds(s registry.Settings) []*registry.Kind {
	g := gates{scaleToZero: s.Enabled(features.HPAScaleToZero), tolerance: s.Enabled(features.HPAConfigurableTolerance)}
	return []*registry.Kind{
		horizontalPodAutoscalers(g),
		horizontalPodAutoscalersV1(g),
	}
}
