package autoscaling

import (
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	bounded "binnacle/libs/quantity"
)

// Annotations of the v1 form for values that only v2 has fields for.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"

	// Annotations of v2beta2, whose scaling rules have no tolerance.
	scaleDownToleranceAnnotation = "autoscaling.alpha.kubernetes.io/scale-down-tolerance"
	scaleUpToleranceAnnotation   = "autoscaling.alpha.kubernetes.io/scale-up-tolerance"
)

// defaultCPUUtilization is the target, in percent, of an autoscaler without metrics.
const defaultCPUUtilization = 80

// withoutConversionAnnotations returns a copy of annotations without those of conversions.
func withoutConversionAnnotations(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	for _, key := range []string{
		metricsAnnotation, behaviorAnnotation, currentMetricsAnnotation, conditionsAnnotation,
		scaleDownToleranceAnnotation, scaleUpToleranceAnnotation,
	} {
		delete(out, key)
	}
	return out
}

// toV1 returns the v1 form, which shares memory with autoscaler. The first CPU utilization among
// the metrics has its own field there.
func toV1(autoscaler *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.HorizontalPodAutoscaler, error) {
	out := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: autoscaler.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(autoscaler.Spec.ScaleTargetRef),
			MinReplicas:    autoscaler.Spec.MinReplicas,
			MaxReplicas:    autoscaler.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: autoscaler.Status.ObservedGeneration,
			LastScaleTime:      autoscaler.Status.LastScaleTime,
			CurrentReplicas:    autoscaler.Status.CurrentReplicas,
			DesiredReplicas:    autoscaler.Status.DesiredReplicas,
		},
	}

	var others []autoscalingv1.MetricSpec
	for i := range autoscaler.Spec.Metrics {
		m := &autoscaler.Spec.Metrics[i]
		if isCPUUtilization(m) {
			if out.Spec.TargetCPUUtilizationPercentage == nil {
				out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
			}
			continue // as in Kubernetes, v1 has the first one only
		}
		others = append(others, specToV1(m))
	}

	var current []autoscalingv1.MetricStatus
	for i := range autoscaler.Status.CurrentMetrics {
		m := &autoscaler.Status.CurrentMetrics[i]
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU &&
			m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
		// CPU statuses are in the annotation as well, because they contain more than the percentage.
		current = append(current, statusToV1(m))
	}

	out.Annotations = withoutConversionAnnotations(autoscaler.Annotations)
	err := setAnnotation(out, metricsAnnotation, len(others) > 0, others)
	if err == nil {
		err = setAnnotation(out, currentMetricsAnnotation, len(current) > 0, current)
	}
	if err == nil && autoscaler.Spec.Behavior != nil {
		err = setAnnotation(out, behaviorAnnotation, true, behaviorToAnnotation(autoscaler.Spec.Behavior))
	}
	if err == nil {
		err = setAnnotation(out, conditionsAnnotation, len(autoscaler.Status.Conditions) > 0, autoscaler.Status.Conditions)
	}
	return out, err
}

// setAnnotation sets a conversion annotation to the JSON of a value, unless the value is not
// present.
func setAnnotation(h *autoscalingv1.HorizontalPodAutoscaler, key string, present bool, value any) error {
	if !present {
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("annotation %s: %w", key, err)
	}
	if h.Annotations == nil {
		h.Annotations = map[string]string{}
	}
	h.Annotations[key] = string(data)
	return nil
}

// toV2 returns the v2 form, which shares memory with autoscaler. It drops an invalid conversion
// annotation, which only a client can have written.
func toV2(autoscaler *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	out := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: autoscaler.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(autoscaler.Spec.ScaleTargetRef),
			MinReplicas:    autoscaler.Spec.MinReplicas,
			MaxReplicas:    autoscaler.Spec.MaxReplicas,
			Metrics:        metricsToV2(autoscaler),
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: autoscaler.Status.ObservedGeneration,
			LastScaleTime:      autoscaler.Status.LastScaleTime,
			CurrentReplicas:    autoscaler.Status.CurrentReplicas,
			DesiredReplicas:    autoscaler.Status.DesiredReplicas,
			CurrentMetrics:     currentMetricsToV2(autoscaler),
		},
	}
	out.Annotations = withoutConversionAnnotations(autoscaler.Annotations)
	if b, ok := decodeAnnotation[behavior](autoscaler, behaviorAnnotation); ok {
		out.Spec.Behavior = behaviorFromAnnotation(&b)
	}
	if conditions, ok := decodeAnnotation[[]autoscalingv2.HorizontalPodAutoscalerCondition](autoscaler, conditionsAnnotation); ok {
		out.Status.Conditions = conditions
	}
	return out
}

// decodeAnnotation decodes a conversion annotation. It returns false if it is absent or invalid. A
// quantity that is too expensive to parse counts as invalid.
func decodeAnnotation[T any](h *autoscalingv1.HorizontalPodAutoscaler, key string) (T, bool) {
	var out T
	text, ok := h.Annotations[key]
	if !ok || bounded.CheckJSON([]byte(text)) != nil || json.Unmarshal([]byte(text), &out) != nil {
		var none T
		return none, false
	}
	return out, true
}

// metricsToV2 returns the metrics of a v1 object: those in the annotation, then the CPU
// utilization. If there are none, it returns the default metric.
func metricsToV2(h *autoscalingv1.HorizontalPodAutoscaler) []autoscalingv2.MetricSpec {
	var out []autoscalingv2.MetricSpec
	others, _ := decodeAnnotation[[]autoscalingv1.MetricSpec](h, metricsAnnotation)
	for i := range others {
		out = append(out, specToV2(&others[i]))
	}
	switch {
	case h.Spec.TargetCPUUtilizationPercentage != nil:
		out = append(out, cpuUtilization(h.Spec.TargetCPUUtilizationPercentage))
	case len(out) == 0:
		percent := int32(defaultCPUUtilization)
		out = append(out, cpuUtilization(&percent))
	}
	return out
}

// currentMetricsToV2 returns the metric statuses of a v1 object: those in the annotation, or else the
// CPU utilization.
func currentMetricsToV2(autoscaler *autoscalingv1.HorizontalPodAutoscaler) []autoscalingv2.MetricStatus {
	if current, ok := decodeAnnotation[[]autoscalingv1.MetricStatus](autoscaler, currentMetricsAnnotation); ok {
		out := make([]autoscalingv2.MetricStatus, len(current))
		for i := range current {
			out[i] = statusToV2(&current[i])
		}
		return out
	}
	if autoscaler.Status.CurrentCPUUtilizationPercentage == nil {
		return nil
	}
	return []autoscalingv2.MetricStatus{{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricStatus{
			Name:    corev1.ResourceCPU,
			Current: autoscalingv2.MetricValueStatus{AverageUtilization: autoscaler.Status.CurrentCPUUtilizationPercentage},
		},
	}}
}

// cpuUtilization returns a metric with a target for the CPU utilization.
func cpuUtilization(percent *int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: percent},
		},
	}
}

// isCPUUtilization reports whether a metric has a target for the CPU utilization.
func isCPUUtilization(m *autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil &&
		m.Resource.Name == corev1.ResourceCPU && m.Resource.Target.AverageUtilization != nil
}
