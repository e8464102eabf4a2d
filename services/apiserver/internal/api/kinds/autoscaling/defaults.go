package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"binnacle/services/apiserver/internal/registry/declare"
)

// scalePeriod is the period of the default policies in seconds.
const scalePeriod = 15

func defaultAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	declare.SetDefaultPtr(&h.Spec.MinReplicas, 1)
	if len(h.Spec.Metrics) == 0 {
		percent := int32(defaultCPUUtilization)
		h.Spec.Metrics = []autoscalingv2.MetricSpec{cpuUtilization(&percent)}
	}
	if b := h.Spec.Behavior; b != nil {
		defaultBehavior(b)
	}
	h.Annotations = withoutConversionAnnotations(h.Annotations)
}

func defaultBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
	defaultScaleUp(&b.ScaleUp)
	defaultScaleDown(&b.ScaleDown)
}

// defaultAutoscalerV1 sets the defaults, and the annotations of conversions as a conversion to v2
// and back sets them: invalid ones are dropped, and those for the status are added. Admission and
// field ownership then see the annotations that are served later, as in Kubernetes.
func defaultAutoscalerV1(h *autoscalingv1.HorizontalPodAutoscaler) {
	declare.SetDefaultPtr(&h.Spec.MinReplicas, 1)
	converted, err := toV1(toV2(h))
	if err != nil { // the stored form cannot be served either
		return
	}
	converted.TypeMeta = h.TypeMeta
	*h = *converted
}

// defaultScaleUp sets the defaults: no stabilization, at most four more pods or twice as many in a
// period.
func defaultScaleUp(rules **autoscalingv2.HPAScalingRules) {
	declare.SetDefaultPtr(rules, autoscalingv2.HPAScalingRules{})
	declare.SetDefaultPtr(&(*rules).StabilizationWindowSeconds, 0)
	declare.SetDefaultPtr(&(*rules).SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if (*rules).Policies == nil {
		(*rules).Policies = []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: scalePeriod},
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: scalePeriod},
		}
	}
}

// defaultScaleDown sets no window, whose default is the controller's.
func defaultScaleDown(rules **autoscalingv2.HPAScalingRules) {
	declare.SetDefaultPtr(rules, autoscalingv2.HPAScalingRules{})
	declare.SetDefaultPtr(&(*rules).SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if (*rules).Policies == nil {
		(*rules).Policies = []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: scalePeriod},
		}
	}
}
