// Package autoscaling declares the HorizontalPodAutoscaler in both versions of
// the autoscaling group. It is stored as v2; what v1 has no fields for is kept
// in annotations of the v1 form. It keeps no state; Kinds makes fresh values
// for the catalog of built-in kinds.
package autoscaling

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/registry"
)

const group = autoscalingv2.GroupName

// Kinds of the group, the preferred version first.
func Kinds(s registry.Settings) []*registry.Kind {
	g := gates{zero: s.On(features.HPAScaleToZero), tolerance: s.On(features.HPAConfigurableTolerance)}
	return []*registry.Kind{
		horizontalPodAutoscalers(g),
		horizontalPodAutoscalersV1(g),
	}
}
