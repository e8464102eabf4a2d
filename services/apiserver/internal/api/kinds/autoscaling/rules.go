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

// Maximum durations in a behavior, in seconds.
const (
	maxStabilizationWindow = 3600
	maxPolicyPeriod        = 1800
)

// gates holds the feature gates of fields and values of autoscalers.
type gates struct {
	scaleToZero bool // HPAScaleToZero
	tolerance   bool // HPAConfigurableTolerance
}

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

// hasTolerance reports whether a behavior, which may be nil, has a tolerance.
func hasTolerance(b *autoscalingv2.HorizontalPodAutoscalerBehavior) bool {
	has := func(r *autoscalingv2.HPAScalingRules) bool { return r != nil && r.Tolerance != nil }
	return b != nil && (has(b.ScaleUp) || has(b.ScaleDown))
}

// validate validates an autoscaler. old is nil at creation. An existing minReplicas of 0 may stay.
func (g gates) validate(fld validate.Field, h, old *autoscalingv2.HorizontalPodAutoscaler) {
	minimum := int32(1)
	if g.scaleToZero || old != nil && old.Spec.MinReplicas != nil && *old.Spec.MinReplicas == 0 {
		minimum = 0
	}
	s, spec := &h.Spec, fld.Child("spec")
	if s.MinReplicas != nil && *s.MinReplicas < minimum {
		spec.Invalid("minReplicas", *s.MinReplicas, fmt.Sprintf("must be greater than or equal to %d", minimum))
	}
	if s.MaxReplicas < 1 {
		spec.Invalid("maxReplicas", s.MaxReplicas, "must be greater than 0")
	}
	if s.MinReplicas != nil && s.MaxReplicas < *s.MinReplicas {
		spec.Invalid("maxReplicas", s.MaxReplicas, "must be greater than or equal to `minReplicas`")
	}
	validateScaleTarget(spec.Child("scaleTargetRef"), &s.ScaleTargetRef)
	validate.Each(spec, "metrics", s.Metrics, validateMetric)
	// Only these metrics have values while there are no pods.
	hasMetricWithoutPods := slices.ContainsFunc(s.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	})
	spec.ForbidSet("metrics", s.MinReplicas != nil && *s.MinReplicas == 0 && !hasMetricWithoutPods,
		"must specify at least one Object or External metric to support scaling to zero replicas")
	validate.Optional(spec, "behavior", s.Behavior, func(fld validate.Field, b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
		validate.Optional(fld, "scaleUp", b.ScaleUp, validateScalingPolicies)
		validate.Optional(fld, "scaleDown", b.ScaleDown, validateScalingPolicies)
	})
}

// validateStatus validates the status of an autoscaler.
func validateStatus(fld validate.Field, h, _ *autoscalingv2.HorizontalPodAutoscaler) {
	fld.Child("status").CheckNonNegative("currentReplicas", int64(h.Status.CurrentReplicas))
	fld.Child("status").CheckNonNegative("desiredReplicas", int64(h.Status.DesiredReplicas))
}

func validateScaleTarget(fld validate.Field, r *autoscalingv2.CrossVersionObjectReference) {
	fld.CheckRequiredText("kind", r.Kind, validate.PathSegment)
	fld.CheckRequiredText("name", r.Name, validate.PathSegment)
}

// validateMetric requires exactly one source, which matches the type of the metric. As in Kubernetes,
// an unknown type is reported twice, and only the first source is validated.
func validateMetric(fld validate.Field, metricSpec *autoscalingv2.MetricSpec) {
	if metricSpec.Type == "" {
		fld.Required("type", "must specify a metric source type")
	}
	fld.RecordTwice(func() {
		validate.OneOf(fld, "type", metricSpec.Type, autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType,
			autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType)
	})
	sources := []struct {
		typ      autoscalingv2.MetricSourceType
		name     string
		isSet    bool
		validate func()
	}{
		{
			typ:      autoscalingv2.ObjectMetricSourceType,
			name:     "object",
			isSet:    metricSpec.Object != nil,
			validate: func() { validateObjectMetric(fld.Child("object"), metricSpec.Object) },
		},
		{
			typ:      autoscalingv2.ExternalMetricSourceType,
			name:     "external",
			isSet:    metricSpec.External != nil,
			validate: func() { validateExternalMetric(fld.Child("external"), metricSpec.External) },
		},
		{
			typ:      autoscalingv2.PodsMetricSourceType,
			name:     "pods",
			isSet:    metricSpec.Pods != nil,
			validate: func() { validatePodsMetric(fld.Child("pods"), metricSpec.Pods) },
		},
		{typ: autoscalingv2.ResourceMetricSourceType, name: "resource", isSet: metricSpec.Resource != nil, validate: func() {
			validateResourceMetric(fld.Child("resource"), metricSpec.Resource)
		}},
		{
			typ:   autoscalingv2.ContainerResourceMetricSourceType,
			name:  "containerResource",
			isSet: metricSpec.ContainerResource != nil,
			validate: func() {
				validateContainerMetric(fld.Child("containerResource"), metricSpec.ContainerResource)
			},
		},
	}
	count := 0
	for _, s := range sources {
		if s.isSet {
			count++
			if count == 1 {
				s.validate()
			}
		}
	}
	for _, s := range sources {
		if s.typ == metricSpec.Type && !s.isSet {
			fld.Required(s.name, "must populate information for the given metric source")
		}
	}
	for _, s := range sources {
		fld.ForbidSet(s.name, count > 1 && s.isSet && s.typ != metricSpec.Type, "must populate the given metric source only")
	}
}

func validateObjectMetric(fld validate.Field, m *autoscalingv2.ObjectMetricSource) {
	validateScaleTarget(fld.Child("describedObject"), &m.DescribedObject)
	validateMetricIdentifier(fld.Child("metric"), &m.Metric)
	target := fld.Child("target")
	validateAmounts(target, &m.Target)
	if m.Target.Value == nil && m.Target.AverageValue == nil {
		target.Required("averageValue", "must set either a target value or averageValue")
	}
}

func validateExternalMetric(fld validate.Field, m *autoscalingv2.ExternalMetricSource) {
	validateMetricIdentifier(fld.Child("metric"), &m.Metric)
	target := fld.Child("target")
	validateAmounts(target, &m.Target)
	if m.Target.Value == nil && m.Target.AverageValue == nil {
		target.Required("averageValue", "must set either a target value for metric or a per-pod target")
	}
	target.ForbidSet("value", m.Target.Value != nil && m.Target.AverageValue != nil,
		"may not set both a target value for metric and a per-pod target")
}

func validatePodsMetric(fld validate.Field, m *autoscalingv2.PodsMetricSource) {
	validateMetricIdentifier(fld.Child("metric"), &m.Metric)
	target := fld.Child("target")
	validateAmounts(target, &m.Target)
	if m.Target.AverageValue == nil {
		target.Required("averageValue", "must specify a positive target averageValue")
	}
}

func validateContainerMetric(fld validate.Field, source *autoscalingv2.ContainerResourceMetricSource) {
	if source.Name == "" {
		fld.Required("name", "must specify a resource name")
	} else {
		name := fld.Child("name")
		if msgs := validate.QualifiedName(string(source.Name)); len(msgs) > 0 {
			// As in Kubernetes, only these messages quote the name, which is passed as a string.
			name.InvalidMessages("", string(source.Name), msgs)
		} else {
			podspec.ValidateResourceName(name, source.Name)
		}
		podspec.ValidateContainerResource(name, source.Name)
	}
	if source.Container == "" {
		fld.Required("container", "must specify a container")
	} else {
		fld.CheckText("container", source.Container, validate.DNSLabel)
	}
	validateUtilization(fld, &source.Target)
}

func validateResourceMetric(fld validate.Field, m *autoscalingv2.ResourceMetricSource) {
	if m.Name == "" {
		fld.Required("name", "must specify a resource name")
	}
	validateUtilization(fld, &m.Target)
}

// validateUtilization validates the target of a resource metric.
func validateUtilization(fld validate.Field, t *autoscalingv2.MetricTarget) {
	target := fld.Child("target")
	validateAmounts(target, t)
	if t.AverageUtilization == nil && t.AverageValue == nil {
		target.Required("averageUtilization", "must set either a target raw value or a target utilization")
	}
	target.ForbidSet("averageValue", t.AverageUtilization != nil && t.AverageValue != nil,
		"may not set both a target raw value and a target utilization")
}

func validateMetricIdentifier(fld validate.Field, id *autoscalingv2.MetricIdentifier) {
	if id.Name == "" {
		fld.Required("name", "must specify a metric name")
		return
	}
	fld.CheckText("name", id.Name, validate.PathSegment)
}

// validateAmounts validates the type and the amounts of a target.
func validateAmounts(fld validate.Field, metricTarget *autoscalingv2.MetricTarget) {
	switch metricTarget.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		if metricTarget.Type == "" {
			fld.Required("type", "must specify a metric target type")
		}
		fld.Invalid("type", metricTarget.Type, "must be either Utilization, Value, or AverageValue")
	}
	requirePositive := func(name string, q *resource.Quantity) {
		if q != nil && q.Sign() != 1 {
			fld.Invalid(name, q, "must be positive")
		}
	}
	requirePositive("value", metricTarget.Value)
	requirePositive("averageValue", metricTarget.AverageValue)
	if n := metricTarget.AverageUtilization; n != nil && *n < 1 {
		fld.Invalid("averageUtilization", *n, "must be greater than 0")
	}
}

// validateScalingPolicies validates the rules for one direction of scaling.
func validateScalingPolicies(fld validate.Field, hpaScalingRules *autoscalingv2.HPAScalingRules) {
	if n := hpaScalingRules.StabilizationWindowSeconds; n != nil {
		if *n < 0 {
			fld.Invalid("stabilizationWindowSeconds", *n, "must be greater than or equal to zero")
		}
		if *n > maxStabilizationWindow {
			fld.Invalid("stabilizationWindowSeconds", *n, fmt.Sprintf("must be less than or equal to %d", maxStabilizationWindow))
		}
	}
	validate.OptionalOneOf(fld, "selectPolicy", hpaScalingRules.SelectPolicy,
		autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)
	if len(hpaScalingRules.Policies) == 0 {
		fld.Required("policies", "must specify at least one Policy")
	}
	validate.Each(fld, "policies", hpaScalingRules.Policies, func(fld validate.Field, p *autoscalingv2.HPAScalingPolicy) {
		validate.OneOf(fld, "type", p.Type, autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)
		if p.Value <= 0 {
			fld.Invalid("value", p.Value, validate.NotPositive)
		}
		if p.PeriodSeconds <= 0 {
			fld.Invalid("periodSeconds", p.PeriodSeconds, validate.NotPositive)
		}
		if p.PeriodSeconds > maxPolicyPeriod {
			fld.Invalid("periodSeconds", p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %d", maxPolicyPeriod))
		}
	})
	if hpaScalingRules.Tolerance != nil {
		fld.CheckNonNegativeQuantity("tolerance", *hpaScalingRules.Tolerance)
	}
}
