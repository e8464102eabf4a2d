package autoscaling

import (
	"fmt"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// Limits of the behavior, in seconds.
const (
	longestWindow = 3600
	longestPeriod = 1800
)

// gates holds the feature gates of fields and values of autoscalers.
type gates struct{ zero, tolerance bool }

// drop clears the fields of disabled gates, unless the stored object has them.
func (g gates) drop(h, old *autoscalingv2.HorizontalPodAutoscaler) {
	if g.tolerance || h.Spec.Behavior == nil || old != nil && hasTolerance(old.Spec.Behavior) {
		return
	}
	for _, r := range []*autoscalingv2.HPAScalingRules{h.Spec.Behavior.ScaleUp, h.Spec.Behavior.ScaleDown} {
		if r != nil {
			r.Tolerance = nil
		}
	}
}

// dropV1 is drop for the v1 form, which has the behavior in an annotation.
func (g gates) dropV1(h, old *autoscalingv1.HorizontalPodAutoscaler) {
	if _, ok := h.Annotations[behaviorAnnotation]; !ok || g.tolerance {
		return
	}
	v2 := toV2(h)
	if !hasTolerance(v2.Spec.Behavior) || old != nil && hasTolerance(toV2(old).Spec.Behavior) {
		return
	}
	g.drop(v2, nil)
	if v1, err := toV1(v2); err == nil {
		h.Annotations[behaviorAnnotation] = v1.Annotations[behaviorAnnotation]
	}
}

func hasTolerance(b *autoscalingv2.HorizontalPodAutoscalerBehavior) bool {
	has := func(r *autoscalingv2.HPAScalingRules) bool { return r != nil && r.Tolerance != nil }
	return b != nil && (has(b.ScaleUp) || has(b.ScaleDown))
}

// rules validates an autoscaler. old is nil at creation. An existing minReplicas of 0 may stay.
func (g gates) rules(fldPath validate.Path, h, old *autoscalingv2.HorizontalPodAutoscaler) {
	least := int32(1)
	if g.zero || old != nil && old.Spec.MinReplicas != nil && *old.Spec.MinReplicas == 0 {
		least = 0
	}
	s, spec := &h.Spec, fldPath.Child("spec")
	if s.MinReplicas != nil && *s.MinReplicas < least {
		spec.Invalid("minReplicas", *s.MinReplicas, fmt.Sprintf("must be greater than or equal to %d", least))
	}
	if s.MaxReplicas < 1 {
		spec.Invalid("maxReplicas", s.MaxReplicas, "must be greater than 0")
	}
	if s.MinReplicas != nil && s.MaxReplicas < *s.MinReplicas {
		spec.Invalid("maxReplicas", s.MaxReplicas, "must be greater than or equal to `minReplicas`")
	}
	targetRules(spec.Child("scaleTargetRef"), &s.ScaleTargetRef)
	validate.Each(spec, "metrics", s.Metrics, metricRules)
	reachesZero := slices.ContainsFunc(s.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	})
	spec.Absent("metrics", s.MinReplicas != nil && *s.MinReplicas == 0 && !reachesZero,
		"must specify at least one Object or External metric to support scaling to zero replicas")
	validate.Optional(spec, "behavior", s.Behavior, func(fldPath validate.Path, b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
		validate.Optional(fldPath, "scaleUp", b.ScaleUp, paceRules)
		validate.Optional(fldPath, "scaleDown", b.ScaleDown, paceRules)
	})
}

func statusRules(fldPath validate.Path, h, _ *autoscalingv2.HorizontalPodAutoscaler) {
	fldPath.Child("status").NonNegative("currentReplicas", int64(h.Status.CurrentReplicas))
	fldPath.Child("status").NonNegative("desiredReplicas", int64(h.Status.DesiredReplicas))
}

func targetRules(fldPath validate.Path, r *autoscalingv2.CrossVersionObjectReference) {
	fldPath.RequiredText("kind", r.Kind, validate.PathSegment)
	fldPath.RequiredText("name", r.Name, validate.PathSegment)
}

// metricRules requires exactly one source, which matches the type of the metric.
func metricRules(fldPath validate.Path, m *autoscalingv2.MetricSpec) {
	if m.Type == "" {
		fldPath.Required("type", "must specify a metric source type")
	}
	oneOf := func() {
		validate.OneOf(fldPath, "type", m.Type, autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType,
			autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType)
	}
	fldPath.RecordTwice(oneOf)
	sources := []struct {
		of    autoscalingv2.MetricSourceType
		name  string
		set   bool
		rules func()
	}{
		{of: autoscalingv2.ObjectMetricSourceType, name: "object", set: m.Object != nil, rules: func() { objectRules(fldPath.Child("object"), m.Object) }},
		{of: autoscalingv2.ExternalMetricSourceType, name: "external", set: m.External != nil, rules: func() { externalRules(fldPath.Child("external"), m.External) }},
		{of: autoscalingv2.PodsMetricSourceType, name: "pods", set: m.Pods != nil, rules: func() { podsRules(fldPath.Child("pods"), m.Pods) }},
		{of: autoscalingv2.ResourceMetricSourceType, name: "resource", set: m.Resource != nil, rules: func() {
			resourceRules(fldPath.Child("resource"), m.Resource)
		}},
		{of: autoscalingv2.ContainerResourceMetricSourceType, name: "containerResource", set: m.ContainerResource != nil, rules: func() {
			containerRules(fldPath.Child("containerResource"), m.ContainerResource)
		}},
	}
	count := 0
	for _, s := range sources {
		if s.set {
			count++
			if count == 1 {
				s.rules()
			}
		}
	}
	for _, s := range sources {
		if s.of == m.Type && !s.set {
			fldPath.Required(s.name, "must populate information for the given metric source")
		}
	}
	for _, s := range sources {
		fldPath.Absent(s.name, count > 1 && s.set && s.of != m.Type, "must populate the given metric source only")
	}
}

func objectRules(fldPath validate.Path, m *autoscalingv2.ObjectMetricSource) {
	targetRules(fldPath.Child("describedObject"), &m.DescribedObject)
	identifierRules(fldPath.Child("metric"), &m.Metric)
	target := fldPath.Child("target")
	amountRules(target, &m.Target)
	if m.Target.Value == nil && m.Target.AverageValue == nil {
		target.Required("averageValue", "must set either a target value or averageValue")
	}
}

func externalRules(fldPath validate.Path, m *autoscalingv2.ExternalMetricSource) {
	identifierRules(fldPath.Child("metric"), &m.Metric)
	target := fldPath.Child("target")
	amountRules(target, &m.Target)
	if m.Target.Value == nil && m.Target.AverageValue == nil {
		target.Required("averageValue", "must set either a target value for metric or a per-pod target")
	}
	target.Absent("value", m.Target.Value != nil && m.Target.AverageValue != nil, "may not set both a target value for metric and a per-pod target")
}

func podsRules(fldPath validate.Path, m *autoscalingv2.PodsMetricSource) {
	identifierRules(fldPath.Child("metric"), &m.Metric)
	target := fldPath.Child("target")
	amountRules(target, &m.Target)
	if m.Target.AverageValue == nil {
		target.Required("averageValue", "must specify a positive target averageValue")
	}
}

func containerRules(fldPath validate.Path, m *autoscalingv2.ContainerResourceMetricSource) {
	if m.Name == "" {
		fldPath.Required("name", "must specify a resource name")
	} else {
		podspec.ContainerResourceName(fldPath.Child("name"), m.Name)
	}
	if m.Container == "" {
		fldPath.Required("container", "must specify a container")
	} else {
		fldPath.Text("container", m.Container, validate.DNSLabel)
	}
	utilizationRules(fldPath, &m.Target)
}

func resourceRules(fldPath validate.Path, m *autoscalingv2.ResourceMetricSource) {
	if m.Name == "" {
		fldPath.Required("name", "must specify a resource name")
	}
	utilizationRules(fldPath, &m.Target)
}

func utilizationRules(fldPath validate.Path, t *autoscalingv2.MetricTarget) {
	target := fldPath.Child("target")
	amountRules(target, t)
	if t.AverageUtilization == nil && t.AverageValue == nil {
		target.Required("averageUtilization", "must set either a target raw value or a target utilization")
	}
	target.Absent("averageValue", t.AverageUtilization != nil && t.AverageValue != nil, "may not set both a target raw value and a target utilization")
}

func identifierRules(fldPath validate.Path, id *autoscalingv2.MetricIdentifier) {
	if id.Name == "" {
		fldPath.Required("name", "must specify a metric name")
		return
	}
	fldPath.Text("name", id.Name, validate.PathSegment)
}

func amountRules(fldPath validate.Path, t *autoscalingv2.MetricTarget) {
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		if t.Type == "" {
			fldPath.Required("type", "must specify a metric target type")
		}
		fldPath.Invalid("type", t.Type, "must be either Utilization, Value, or AverageValue")
	}
	positive := func(name string, q *resource.Quantity) {
		if q != nil && q.Sign() != 1 {
			fldPath.Invalid(name, q, "must be positive")
		}
	}
	positive("value", t.Value)
	positive("averageValue", t.AverageValue)
	if n := t.AverageUtilization; n != nil && *n < 1 {
		fldPath.Invalid("averageUtilization", *n, "must be greater than 0")
	}
}

func paceRules(fldPath validate.Path, r *autoscalingv2.HPAScalingRules) {
	if n := r.StabilizationWindowSeconds; n != nil {
		if *n < 0 {
			fldPath.Invalid("stabilizationWindowSeconds", *n, "must be greater than or equal to zero")
		}
		if *n > longestWindow {
			fldPath.Invalid("stabilizationWindowSeconds", *n, fmt.Sprintf("must be less than or equal to %d", longestWindow))
		}
	}
	validate.OptionalOneOf(fldPath, "selectPolicy", r.SelectPolicy,
		autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)
	if len(r.Policies) == 0 {
		fldPath.Required("policies", "must specify at least one Policy")
	}
	validate.Each(fldPath, "policies", r.Policies, func(fldPath validate.Path, p *autoscalingv2.HPAScalingPolicy) {
		validate.OneOf(fldPath, "type", p.Type, autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)
		if p.Value <= 0 {
			fldPath.Invalid("value", p.Value, validate.NotPositive)
		}
		if p.PeriodSeconds <= 0 {
			fldPath.Invalid("periodSeconds", p.PeriodSeconds, validate.NotPositive)
		}
		if p.PeriodSeconds > longestPeriod {
			fldPath.Invalid("periodSeconds", p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %d", longestPeriod))
		}
	})
	if r.Tolerance != nil {
		fldPath.NonNegativeQuantity("tolerance", *r.Tolerance)
	}
}
