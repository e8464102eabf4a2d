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

// defaultAutoscalerV1 sets the defaults of a v1 object. It also converts the object to v2 and back,
// which drops invalid conversion annotations and adds those for the status. As in Kubernetes, admission
// and field ownership then see the annotations that are served later.
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

// defaultScaleDown sets the defaults: all pods may go in a period. The default of the stabilization
// window is a flag of the controller, so it is not set here.
func defaultScaleDown(rules **autoscalingv2.HPAScalingRules) {
	declare.SetDefaultPtr(rules, autoscalingv2.HPAScalingRules{})
	declare.SetDefaultPtr(&(*rules).SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if (*rules).Policies == nil {
		(*rules).Policies = []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: scalePeriod},
		}
	}
}
