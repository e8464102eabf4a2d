package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"binnacle/services/apiserver/internal/registry/declare"
)

// scalePeriod in seconds is how often the default policies allow a change.
const scalePeriod = 15

func defaultAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	declare.FillPtr(&h.Spec.MinReplicas, 1)
	if len(h.Spec.Metrics) == 0 {
		percent := int32(defaultCPUUtilization)
		h.Spec.Metrics = []autoscalingv2.MetricSpec{cpuUtilization(&percent)}
	}
	if b := h.Spec.Behavior; b != nil {
		defaultBehavior(b)
	}
}

func defaultBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
	defaultScaleUp(&b.ScaleUp)
	defaultScaleDown(&b.ScaleDown)
}

// defaultAutoscalerV1 aims at the default utilization unless other metrics are
// in the annotation.
func defaultAutoscalerV1(h *autoscalingv1.HorizontalPodAutoscaler) {
	declare.FillPtr(&h.Spec.MinReplicas, 1)
	if others, _ := annotation[[]autoscalingv1.MetricSpec](h, metricsAnnotation); len(others) == 0 {
		declare.FillPtr(&h.Spec.TargetCPUUtilizationPercentage, defaultCPUUtilization)
	}
}

// defaultScaleUp follows at once, by four pods or double.
func defaultScaleUp(rules **autoscalingv2.HPAScalingRules) {
	declare.FillPtr(rules, autoscalingv2.HPAScalingRules{})
	declare.FillPtr(&(*rules).StabilizationWindowSeconds, 0)
	declare.FillPtr(&(*rules).SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if (*rules).Policies == nil {
		(*rules).Policies = []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: scalePeriod},
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: scalePeriod},
		}
	}
}

// defaultScaleDown leaves the window to the controller's own default.
func defaultScaleDown(rules **autoscalingv2.HPAScalingRules) {
	declare.FillPtr(rules, autoscalingv2.HPAScalingRules{})
	declare.FillPtr(&(*rules).SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if (*rules).Policies == nil {
		(*rules).Policies = []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: scalePeriod},
		}
	}
}
