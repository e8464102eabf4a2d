package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"binnacle/services/apiserver/internal/registry/declare"
)

// specToV1 converts a metric spec to v1. The result shares memory with metricSpec.
func specToV1(metricSpec *autoscalingv2.MetricSpec) autoscalingv1.MetricSpec {
	out := autoscalingv1.MetricSpec{Type: autoscalingv1.MetricSourceType(metricSpec.Type)}
	if o := metricSpec.Object; o != nil {
		out.Object = &autoscalingv1.ObjectMetricSource{
			Target:       autoscalingv1.CrossVersionObjectReference(o.DescribedObject),
			MetricName:   o.Metric.Name,
			Selector:     o.Metric.Selector,
			TargetValue:  declare.Deref(o.Target.Value),
			AverageValue: o.Target.AverageValue,
		}
	}
	if p := metricSpec.Pods; p != nil {
		out.Pods = &autoscalingv1.PodsMetricSource{
			MetricName: p.Metric.Name, Selector: p.Metric.Selector, TargetAverageValue: declare.Deref(p.Target.AverageValue),
		}
	}
	if r := metricSpec.Resource; r != nil {
		out.Resource = &autoscalingv1.ResourceMetricSource{
			Name: r.Name, TargetAverageUtilization: r.Target.AverageUtilization, TargetAverageValue: r.Target.AverageValue,
		}
	}
	if r := metricSpec.ContainerResource; r != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricSource{
			Name: r.Name, Container: r.Container,
			TargetAverageUtilization: r.Target.AverageUtilization, TargetAverageValue: r.Target.AverageValue,
		}
	}
	if e := metricSpec.External; e != nil {
		out.External = &autoscalingv1.ExternalMetricSource{
			MetricName: e.Metric.Name, MetricSelector: e.Metric.Selector,
			TargetValue: e.Target.Value, TargetAverageValue: e.Target.AverageValue,
		}
	}
	return out
}

// specToV2 converts a metric spec to v2. The result shares memory with metricSpec.
func specToV2(metricSpec *autoscalingv1.MetricSpec) autoscalingv2.MetricSpec {
	out := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(metricSpec.Type)}
	if o := metricSpec.Object; o != nil {
		out.Object = &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(o.Target),
			Metric:          autoscalingv2.MetricIdentifier{Name: o.MetricName, Selector: o.Selector},
			Target:          objectTarget(o),
		}
	}
	if p := metricSpec.Pods; p != nil {
		out.Pods = &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: p.MetricName, Selector: p.Selector},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &p.TargetAverageValue},
		}
	}
	if r := metricSpec.Resource; r != nil {
		out.Resource = &autoscalingv2.ResourceMetricSource{
			Name: r.Name, Target: usageTarget(r.TargetAverageUtilization, r.TargetAverageValue),
		}
	}
	if r := metricSpec.ContainerResource; r != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
			Name: r.Name, Container: r.Container, Target: usageTarget(r.TargetAverageUtilization, r.TargetAverageValue),
		}
	}
	if e := metricSpec.External; e != nil {
		typ := autoscalingv2.AverageValueMetricType
		if e.TargetValue != nil {
			typ = autoscalingv2.ValueMetricType
		}
		out.External = &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: e.MetricName, Selector: e.MetricSelector},
			Target: autoscalingv2.MetricTarget{Type: typ, Value: e.TargetValue, AverageValue: e.TargetAverageValue},
		}
	}
	return out
}

// objectTarget returns the target of an object metric in v2. If there is an average, a value of zero
// means that no value is set: v1 always contains the value, and v2 rejects zero.
func objectTarget(o *autoscalingv1.ObjectMetricSource) autoscalingv2.MetricTarget {
	if o.AverageValue == nil {
		return autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &o.TargetValue}
	}
	t := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: o.AverageValue}
	if !o.TargetValue.IsZero() {
		t.Value = &o.TargetValue
	}
	return t
}

// usageTarget returns the target of a resource metric in v2: a utilization in percent or an average
// value.
func usageTarget(utilization *int32, value *resource.Quantity) autoscalingv2.MetricTarget {
	t := autoscalingv2.MetricTarget{
		Type:               autoscalingv2.AverageValueMetricType,
		AverageUtilization: utilization,
		AverageValue:       value,
	}
	if utilization != nil {
		t.Type = autoscalingv2.UtilizationMetricType
	}
	return t
}

// statusToV1 converts a metric status to v1. The result shares memory with metricStatus.
func statusToV1(metricStatus *autoscalingv2.MetricStatus) autoscalingv1.MetricStatus {
	out := autoscalingv1.MetricStatus{Type: autoscalingv1.MetricSourceType(metricStatus.Type)}
	if o := metricStatus.Object; o != nil {
		out.Object = &autoscalingv1.ObjectMetricStatus{
			Target:       autoscalingv1.CrossVersionObjectReference(o.DescribedObject),
			MetricName:   o.Metric.Name,
			Selector:     o.Metric.Selector,
			CurrentValue: declare.Deref(o.Current.Value),
			AverageValue: o.Current.AverageValue,
		}
	}
	if p := metricStatus.Pods; p != nil {
		out.Pods = &autoscalingv1.PodsMetricStatus{
			MetricName: p.Metric.Name, Selector: p.Metric.Selector, CurrentAverageValue: declare.Deref(p.Current.AverageValue),
		}
	}
	if r := metricStatus.Resource; r != nil {
		out.Resource = &autoscalingv1.ResourceMetricStatus{
			Name: r.Name, CurrentAverageUtilization: r.Current.AverageUtilization, CurrentAverageValue: declare.Deref(r.Current.AverageValue),
		}
	}
	if r := metricStatus.ContainerResource; r != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricStatus{
			Name: r.Name, Container: r.Container,
			CurrentAverageUtilization: r.Current.AverageUtilization, CurrentAverageValue: declare.Deref(r.Current.AverageValue),
		}
	}
	if e := metricStatus.External; e != nil {
		out.External = &autoscalingv1.ExternalMetricStatus{
			MetricName: e.Metric.Name, MetricSelector: e.Metric.Selector,
			CurrentValue: declare.Deref(e.Current.Value), CurrentAverageValue: e.Current.AverageValue,
		}
	}
	return out
}

// statusToV2 converts a metric status to v2. The result shares memory with metricStatus.
func statusToV2(metricStatus *autoscalingv1.MetricStatus) autoscalingv2.MetricStatus {
	out := autoscalingv2.MetricStatus{Type: autoscalingv2.MetricSourceType(metricStatus.Type)}
	if o := metricStatus.Object; o != nil {
		out.Object = &autoscalingv2.ObjectMetricStatus{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(o.Target),
			Metric:          autoscalingv2.MetricIdentifier{Name: o.MetricName, Selector: o.Selector},
			Current:         autoscalingv2.MetricValueStatus{Value: &o.CurrentValue, AverageValue: o.AverageValue},
		}
	}
	if p := metricStatus.Pods; p != nil {
		out.Pods = &autoscalingv2.PodsMetricStatus{
			Metric:  autoscalingv2.MetricIdentifier{Name: p.MetricName, Selector: p.Selector},
			Current: autoscalingv2.MetricValueStatus{AverageValue: &p.CurrentAverageValue},
		}
	}
	if r := metricStatus.Resource; r != nil {
		out.Resource = &autoscalingv2.ResourceMetricStatus{
			Name: r.Name,
			Current: autoscalingv2.MetricValueStatus{
				AverageUtilization: r.CurrentAverageUtilization,
				AverageValue:       &r.CurrentAverageValue,
			},
		}
	}
	if r := metricStatus.ContainerResource; r != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{
			Name:      r.Name,
			Container: r.Container,
			Current: autoscalingv2.MetricValueStatus{
				AverageUtilization: r.CurrentAverageUtilization,
				AverageValue:       &r.CurrentAverageValue,
			},
		}
	}
	if e := metricStatus.External; e != nil {
		out.External = &autoscalingv2.ExternalMetricStatus{
			Metric:  autoscalingv2.MetricIdentifier{Name: e.MetricName, Selector: e.MetricSelector},
			Current: autoscalingv2.MetricValueStatus{Value: &e.CurrentValue, AverageValue: e.CurrentAverageValue},
		}
	}
	return out
}

// behavior is the form of spec.behavior in the annotation of a v1 object. As in Kubernetes, its JSON
// has the names of the Go fields.
type behavior struct {
	ScaleUp, ScaleDown *scalingRules
}

type scalingRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []scalingPolicy
	Tolerance                  *resource.Quantity
}

type scalingPolicy struct {
	Type                 autoscalingv2.HPAScalingPolicyType
	Value, PeriodSeconds int32
}

// behaviorToAnnotation converts spec.behavior of a v2 object to its form in an annotation.
func behaviorToAnnotation(apiBehavior *autoscalingv2.HorizontalPodAutoscalerBehavior) *behavior {
	rules := func(hpaScalingRules *autoscalingv2.HPAScalingRules) *scalingRules {
		if hpaScalingRules == nil {
			return nil
		}
		out := &scalingRules{
			StabilizationWindowSeconds: hpaScalingRules.StabilizationWindowSeconds,
			SelectPolicy:               hpaScalingRules.SelectPolicy,
			Tolerance:                  hpaScalingRules.Tolerance,
		}
		if hpaScalingRules.Policies != nil { // an empty list is not null
			out.Policies = make([]scalingPolicy, 0, len(hpaScalingRules.Policies))
		}
		for _, p := range hpaScalingRules.Policies {
			out.Policies = append(out.Policies, scalingPolicy{p.Type, p.Value, p.PeriodSeconds})
		}
		return out
	}
	return &behavior{ScaleUp: rules(apiBehavior.ScaleUp), ScaleDown: rules(apiBehavior.ScaleDown)}
}

// behaviorFromAnnotation converts the form in an annotation to spec.behavior of a v2 object. It
// returns nil for an empty behavior.
func behaviorFromAnnotation(annotated *behavior) *autoscalingv2.HorizontalPodAutoscalerBehavior {
	if annotated.ScaleUp == nil && annotated.ScaleDown == nil {
		return nil
	}
	rules := func(r *scalingRules) *autoscalingv2.HPAScalingRules {
		if r == nil {
			return nil
		}
		out := &autoscalingv2.HPAScalingRules{
			StabilizationWindowSeconds: r.StabilizationWindowSeconds,
			SelectPolicy:               r.SelectPolicy,
			Tolerance:                  r.Tolerance,
		}
		if r.Policies != nil {
			out.Policies = make([]autoscalingv2.HPAScalingPolicy, 0, len(r.Policies))
		}
		for _, p := range r.Policies {
			out.Policies = append(out.Policies,
				autoscalingv2.HPAScalingPolicy{Type: p.Type, Value: p.Value, PeriodSeconds: p.PeriodSeconds})
		}
		return out
	}
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(annotated.ScaleUp), ScaleDown: rules(annotated.ScaleDown)}
}
