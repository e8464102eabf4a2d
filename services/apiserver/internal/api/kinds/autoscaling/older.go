package autoscaling

import (
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	autoscalingv2beta1 "k8s.io/api/autoscaling/v2beta1"
	"k8s.io/apimachinery/pkg/api/resource"

	bounded "binnacle/libs/quantity"
	"binnacle/services/apiserver/internal/registry/declare"
)

// FromV2beta1 converts a v2beta1 HorizontalPodAutoscaler through autoscaling/v1, whose annotations
// have the metrics and conditions in the form of v2beta1.
func FromV2beta1(old *autoscalingv2beta1.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	autoscaler := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: old.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(old.Spec.ScaleTargetRef),
			MinReplicas:    old.Spec.MinReplicas,
			MaxReplicas:    old.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: old.Status.ObservedGeneration,
			LastScaleTime:      old.Status.LastScaleTime,
			CurrentReplicas:    old.Status.CurrentReplicas,
			DesiredReplicas:    old.Status.DesiredReplicas,
		},
	}
	autoscaler.Annotations = maps.Clone(autoscaler.Annotations)
	for key, value := range map[string]any{
		metricsAnnotation:        old.Spec.Metrics,
		currentMetricsAnnotation: old.Status.CurrentMetrics,
		conditionsAnnotation:     old.Status.Conditions,
	} {
		delete(autoscaler.Annotations, key)
		data, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		if string(data) != "null" {
			if autoscaler.Annotations == nil {
				autoscaler.Annotations = map[string]string{}
			}
			autoscaler.Annotations[key] = string(data)
		}
	}
	return toV2(autoscaler), nil
}

// FromV2beta2 converts a v2beta2 HorizontalPodAutoscaler, which has the fields of v2 but tolerances
// in annotations.
func FromV2beta2(autoscaler *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	down, err := tolerance(autoscaler.Annotations, scaleDownToleranceAnnotation)
	if err != nil {
		return nil, err
	}
	quantity, err := tolerance(autoscaler.Annotations, scaleUpToleranceAnnotation)
	if err != nil {
		return nil, err
	}
	if down != nil || quantity != nil {
		declare.SetDefaultPtr(&autoscaler.Spec.Behavior, autoscalingv2.HorizontalPodAutoscalerBehavior{})
	}
	if down != nil {
		declare.SetDefaultPtr(&autoscaler.Spec.Behavior.ScaleDown, autoscalingv2.HPAScalingRules{})
		autoscaler.Spec.Behavior.ScaleDown.Tolerance = down
	}
	if quantity != nil {
		declare.SetDefaultPtr(&autoscaler.Spec.Behavior.ScaleUp, autoscalingv2.HPAScalingRules{})
		autoscaler.Spec.Behavior.ScaleUp.Tolerance = quantity
	}
	autoscaler.Annotations = withoutConversionAnnotations(autoscaler.Annotations)
	return autoscaler, nil
}

// tolerance returns the quantity in an annotation, or nil if it is absent.
func tolerance(annotations map[string]string, key string) (*resource.Quantity, error) {
	text, ok := annotations[key]
	if !ok {
		return nil, nil
	}
	q, err := bounded.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", key, err)
	}
	return &q, nil
}
