package autoscaling

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	autoscalingv2beta1 "k8s.io/api/autoscaling/v2beta1"
	"k8s.io/apimachinery/pkg/api/resource"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// horizontalPodAutoscalers declares the namespaced kind HorizontalPodAutoscaler in v2.
func horizontalPodAutoscalers(enabled gates) *registry.Kind {
	kind := autoscaler()
	kind.Version = "v2"
	kind.New = declare.New[autoscalingv2.HorizontalPodAutoscaler]
	kind.NewList = declare.New[autoscalingv2.HorizontalPodAutoscalerList]
	kind.Parts = declare.SpecStatusAccessors(
		func(h *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscalerSpec, *autoscalingv2.HorizontalPodAutoscalerStatus) {
			return &h.Spec, &h.Status
		},
	)
	kind.Default = declare.Adapt(defaultAutoscaler)
	kind.Create.Prepare = declare.Adapt(func(h *autoscalingv2.HorizontalPodAutoscaler) { enabled.drop(h, nil) })
	kind.Create.Validate = declare.AdaptValidation(
		func(fld validate.Field, h *autoscalingv2.HorizontalPodAutoscaler) { enabled.validate(fld, h, nil) },
	)
	kind.Update.Prepare = declare.AdaptUpdate(enabled.drop)
	kind.Update.Validate = declare.AdaptUpdateValidation(enabled.validate)
	kind.Subresources = []registry.Subresource{declare.ValidatedStatus("HorizontalPodAutoscaler", validateStatus)}
	return kind
}

// horizontalPodAutoscalersV1 declares the kind in v1. Its objects are stored in v2.
func horizontalPodAutoscalersV1(enabled gates) *registry.Kind {
	kind := autoscaler()
	kind.Version = "v1"
	kind.New = declare.New[autoscalingv1.HorizontalPodAutoscaler]
	kind.NewList = declare.New[autoscalingv1.HorizontalPodAutoscalerList]
	kind.Parts = partsV1()
	kind.Default = declare.Adapt(defaultAutoscalerV1)
	// A write of the object must not change the parts of the status that are in annotations.
	resetStatus := func(h, old registry.Object) { copyAnnotations(h, old, currentMetricsAnnotation, conditionsAnnotation) }
	kind.Create.Prepare = func(h registry.Object) {
		resetStatus(h, nil)
		enabled.dropV1(h.(*autoscalingv1.HorizontalPodAutoscaler), nil)
	}
	kind.Update.Prepare = func(h, old registry.Object) {
		resetStatus(h, old)
		enabled.dropV1(h.(*autoscalingv1.HorizontalPodAutoscaler), old.(*autoscalingv1.HorizontalPodAutoscaler))
	}
	kind.Create.Validate = declare.AdaptValidation(
		func(fld validate.Field, h *autoscalingv1.HorizontalPodAutoscaler) {
			enabled.validate(fld, toV2(h), nil)
		},
	)
	kind.Update.Validate = declare.AdaptUpdateValidation(func(fld validate.Field, h, old *autoscalingv1.HorizontalPodAutoscaler) {
		enabled.validate(fld, toV2(h), toV2(old))
	})
	kind.Subresources = []registry.Subresource{
		declare.ValidatedStatus("HorizontalPodAutoscaler", func(fld validate.Field, h, old *autoscalingv1.HorizontalPodAutoscaler) {
			validateStatus(fld, toV2(h), toV2(old))
		}),
	}
	kind.Stored.Version = autoscalingv2.SchemeGroupVersion
	kind.Stored.New = declare.New[autoscalingv2.HorizontalPodAutoscaler]
	kind.Stored.ToStored = func(served registry.Object) (registry.Object, error) {
		return toV2(served.(*autoscalingv1.HorizontalPodAutoscaler)), nil
	}
	kind.Stored.FromStored = func(stored registry.Object) (registry.Object, error) {
		h := stored.(*autoscalingv2.HorizontalPodAutoscaler)
		if h.Spec.Behavior != nil {
			h = h.DeepCopy()
			defaultBehavior(h.Spec.Behavior)
		}
		return toV1(h)
	}
	kind.Presentation.ColumnsFromStored = true
	return kind
}

// partsV1 returns accessors that treat the annotations with parts of the spec as parts of it.
func partsV1() registry.SpecStatusAccessors {
	p := declare.SpecStatusAccessors(
		func(h *autoscalingv1.HorizontalPodAutoscaler) (*autoscalingv1.HorizontalPodAutoscalerSpec, *autoscalingv1.HorizontalPodAutoscalerStatus) {
			return &h.Spec, &h.Status
		},
	)
	copySpec := p.CopySpec
	p.CopySpec = func(to, from registry.Object) {
		copySpec(to, from)
		copyAnnotations(to, from, metricsAnnotation, behaviorAnnotation)
	}
	return p
}

// copyAnnotations replaces the annotations with these keys by those of another object. It removes them
// if from is nil.
func copyAnnotations(to, from registry.Object, keys ...string) {
	out := maps.Clone(to.GetAnnotations())
	for _, key := range keys {
		delete(out, key)
		if from == nil {
			continue
		}
		if value, ok := from.GetAnnotations()[key]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	to.SetAnnotations(out)
}

// autoscaler returns the declaration that both versions share.
func autoscaler() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:      group,
			Resource:   "horizontalpodautoscalers",
			Singular:   "horizontalpodautoscaler",
			Kind:       "HorizontalPodAutoscaler",
			ShortNames: []string{"hpa"},
			Categories: []string{"all"},
			Namespaced: true,
		},
		Stored:       registry.StorageForm{Prefix: "horizontalpodautoscalers"},
		Presentation: registry.Presentation{Columns: autoscalerColumns()},
	}
}

// autoscalerColumns returns the columns of both versions. Some descriptions are those of an older
// version, as in Kubernetes.
func autoscalerColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(autoscalingv2beta1.HorizontalPodAutoscalerSpec{}, name) }
	stat := func(name string) string { return columns.Doc(autoscalingv2.HorizontalPodAutoscalerStatus{}, name) }
	column := func(name, desc string, cell func(*autoscalingv2.HorizontalPodAutoscaler) any) registry.Column {
		return columns.New(name, columns.String, "", desc, 0, func(o registry.Object) any {
			if h, ok := o.(*autoscalingv1.HorizontalPodAutoscaler); ok {
				o = toV2(h)
			}
			return cell(o.(*autoscalingv2.HorizontalPodAutoscaler))
		})
	}
	type hpa = autoscalingv2.HorizontalPodAutoscaler
	return []registry.Column{
		columns.Name(),
		column(
			"Reference",
			spec("scaleTargetRef"),
			func(h *hpa) any { return h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name },
		),
		column("Targets", spec("metrics"), func(h *hpa) any { return targetsText(h.Spec.Metrics, h.Status.CurrentMetrics) }),
		column("MinPods", spec("minReplicas"), func(h *hpa) any {
			if h.Spec.MinReplicas == nil {
				return columns.Unset
			}
			return strconv.Itoa(int(*h.Spec.MinReplicas))
		}),
		column("MaxPods", spec("maxReplicas"), func(h *hpa) any { return int64(h.Spec.MaxReplicas) }),
		column("Replicas", stat("currentReplicas"), func(h *hpa) any { return int64(h.Status.CurrentReplicas) }),
		columns.Age(),
	}
}

// maxTargets is the maximum number of metrics in a cell.
const maxTargets = 2

// targetsText returns each metric as "current/target". Statuses are in the order of the
// specifications.
func targetsText(specs []autoscalingv2.MetricSpec, statuses []autoscalingv2.MetricStatus) string {
	if len(specs) == 0 {
		return columns.None
	}
	texts := make([]string, min(len(specs), maxTargets))
	for i := range texts {
		var current *autoscalingv2.MetricStatus
		if i < len(statuses) {
			current = &statuses[i]
		}
		texts[i] = targetText(&specs[i], current)
	}
	text := strings.Join(texts, ", ")
	if more := len(specs) - maxTargets; more > 0 {
		text += fmt.Sprintf(" + %d more...", more)
	}
	return text
}

// targetText returns a metric as "current/target". status may be nil.
func targetText(metricSpec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	current := measuredValueOf(metricSpec.Type, status)
	switch {
	case metricSpec.Type == autoscalingv2.ExternalMetricSourceType && metricSpec.External != nil:
		return valueText(&metricSpec.External.Target, current)
	case metricSpec.Type == autoscalingv2.ObjectMetricSourceType && metricSpec.Object != nil:
		return valueText(&metricSpec.Object.Target, current)
	case metricSpec.Type == autoscalingv2.PodsMetricSourceType && metricSpec.Pods != nil:
		return quantityText(current.AverageValue) + "/" + metricSpec.Pods.Target.AverageValue.String()
	case metricSpec.Type == autoscalingv2.ResourceMetricSourceType && metricSpec.Resource != nil:
		return metricSpec.Resource.Name.String() + ": " + usageText(&metricSpec.Resource.Target, current)
	case metricSpec.Type == autoscalingv2.ContainerResourceMetricSourceType && metricSpec.ContainerResource != nil:
		return metricSpec.ContainerResource.Name.String() + ": " + usageText(&metricSpec.ContainerResource.Target, current)
	default:
		return "<unknown type>"
	}
}

// measuredValueOf returns the measured value of a metric of the type. It is empty without a status.
func measuredValueOf(typ autoscalingv2.MetricSourceType, metricStatus *autoscalingv2.MetricStatus) autoscalingv2.MetricValueStatus {
	switch {
	case metricStatus == nil:
	case typ == autoscalingv2.ExternalMetricSourceType && metricStatus.External != nil:
		return metricStatus.External.Current
	case typ == autoscalingv2.ObjectMetricSourceType && metricStatus.Object != nil:
		return metricStatus.Object.Current
	case typ == autoscalingv2.PodsMetricSourceType && metricStatus.Pods != nil:
		return metricStatus.Pods.Current
	case typ == autoscalingv2.ResourceMetricSourceType && metricStatus.Resource != nil:
		return metricStatus.Resource.Current
	case typ == autoscalingv2.ContainerResourceMetricSourceType && metricStatus.ContainerResource != nil:
		return metricStatus.ContainerResource.Current
	}
	return autoscalingv2.MetricValueStatus{}
}

// valueText returns the value or average of a metric and its target.
func valueText(target *autoscalingv2.MetricTarget, current autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return quantityText(current.AverageValue) + "/" + target.AverageValue.String() + " (avg)"
	}
	return quantityText(current.Value) + "/" + target.Value.String()
}

// usageText returns the average or utilization of a resource and its target.
func usageText(target *autoscalingv2.MetricTarget, current autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return quantityText(current.AverageValue) + "/" + target.AverageValue.String()
	}
	return percentText(current.AverageUtilization, columns.Unknown) + "/" + percentText(target.AverageUtilization, "<auto>")
}

// quantityText returns a quantity, or "<unknown>" for nil.
func quantityText(q *resource.Quantity) string {
	if q == nil {
		return columns.Unknown
	}
	return q.String()
}

// percentText returns a percentage, or ifNil.
func percentText(n *int32, ifNil string) string {
	if n == nil {
		return ifNil
	}
	return strconv.Itoa(int(*n)) + "%"
}
