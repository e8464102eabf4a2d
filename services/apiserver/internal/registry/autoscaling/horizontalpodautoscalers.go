package autoscaling

import (
	"fmt"
	"strconv"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	autoscalingv2beta1 "k8s.io/api/autoscaling/v2beta1"
	"k8s.io/apimachinery/pkg/api/resource"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func horizontalPodAutoscalers() *registry.Kind {
	k := autoscaler()
	k.Version = "v2"
	k.New = declare.New[autoscalingv2.HorizontalPodAutoscaler]
	k.NewList = declare.New[autoscalingv2.HorizontalPodAutoscalerList]
	k.Default = declare.Do(defaultAutoscaler)
	k.Columns = autoscalerColumns(func(h *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler { return h })
	return k
}

func horizontalPodAutoscalersV1() *registry.Kind {
	k := autoscaler()
	k.Version = "v1"
	k.New = declare.New[autoscalingv1.HorizontalPodAutoscaler]
	k.NewList = declare.New[autoscalingv1.HorizontalPodAutoscalerList]
	k.Default = declare.Do(defaultAutoscalerV1)
	k.Stored.Version = autoscalingv2.SchemeGroupVersion
	k.Stored.New = declare.New[autoscalingv2.HorizontalPodAutoscaler]
	k.Stored.To = func(served registry.Object) (registry.Object, error) {
		return toV2(served.(*autoscalingv1.HorizontalPodAutoscaler)), nil
	}
	k.Stored.From = func(stored registry.Object) (registry.Object, error) {
		return toV1(stored.(*autoscalingv2.HorizontalPodAutoscaler))
	}
	k.Columns = autoscalerColumns(toV2)
	return k
}

// autoscaler is what both versions have in common.
func autoscaler() *registry.Kind {
	return &registry.Kind{
		Group: group, Resource: "horizontalpodautoscalers", Singular: "horizontalpodautoscaler", Kind: "HorizontalPodAutoscaler",
		ShortNames: []string{"hpa"}, Categories: []string{"all"}, Namespaced: true,
		Stored:       registry.Stored{Prefix: "horizontalpodautoscalers"},
		Subresources: []registry.Subresource{declare.Status("HorizontalPodAutoscaler")},
	}
}

// autoscalerColumns are the columns of both versions; view makes the v2 form.
// Some descriptions are those of an older version, as clients know them.
func autoscalerColumns[T registry.Object](view func(T) *autoscalingv2.HorizontalPodAutoscaler) []registry.Column {
	spec := func(name string) string { return columns.Doc(autoscalingv2beta1.HorizontalPodAutoscalerSpec{}, name) }
	stat := func(name string) string { return columns.Doc(autoscalingv2.HorizontalPodAutoscalerStatus{}, name) }
	column := func(name, desc string, cell func(*autoscalingv2.HorizontalPodAutoscaler) any) registry.Column {
		return columns.Of(name, columns.String, "", desc, 0, func(o T) any { return cell(view(o)) })
	}
	type hpa = autoscalingv2.HorizontalPodAutoscaler
	return []registry.Column{
		columns.Name(),
		column("Reference", spec("scaleTargetRef"), func(h *hpa) any { return h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name }),
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

// maxTargets are told one by one.
const maxTargets = 2

// targetsText tells each metric as "current/target". Statuses are in the order
// of the specifications.
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

func targetText(m *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	now := currentOf(m.Type, status)
	switch {
	case m.Type == autoscalingv2.ExternalMetricSourceType && m.External != nil:
		return valueText(&m.External.Target, now)
	case m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil:
		return valueText(&m.Object.Target, now)
	case m.Type == autoscalingv2.PodsMetricSourceType && m.Pods != nil:
		return quantityText(now.AverageValue) + "/" + m.Pods.Target.AverageValue.String()
	case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil:
		return m.Resource.Name.String() + ": " + usageText(&m.Resource.Target, now)
	case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil:
		return m.ContainerResource.Name.String() + ": " + usageText(&m.ContainerResource.Target, now)
	default:
		return "<unknown type>"
	}
}

// currentOf is the measured value of a metric of the type; empty when there is
// none.
func currentOf(typ autoscalingv2.MetricSourceType, s *autoscalingv2.MetricStatus) autoscalingv2.MetricValueStatus {
	switch {
	case s == nil:
	case typ == autoscalingv2.ExternalMetricSourceType && s.External != nil:
		return s.External.Current
	case typ == autoscalingv2.ObjectMetricSourceType && s.Object != nil:
		return s.Object.Current
	case typ == autoscalingv2.PodsMetricSourceType && s.Pods != nil:
		return s.Pods.Current
	case typ == autoscalingv2.ResourceMetricSourceType && s.Resource != nil:
		return s.Resource.Current
	case typ == autoscalingv2.ContainerResourceMetricSourceType && s.ContainerResource != nil:
		return s.ContainerResource.Current
	}
	return autoscalingv2.MetricValueStatus{}
}

func valueText(target *autoscalingv2.MetricTarget, now autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return quantityText(now.AverageValue) + "/" + target.AverageValue.String() + " (avg)"
	}
	return quantityText(now.Value) + "/" + target.Value.String()
}

func usageText(target *autoscalingv2.MetricTarget, now autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return quantityText(now.AverageValue) + "/" + target.AverageValue.String()
	}
	return percentText(now.AverageUtilization, columns.Unknown) + "/" + percentText(target.AverageUtilization, "<auto>")
}

func quantityText(q *resource.Quantity) string {
	if q == nil {
		return columns.Unknown
	}
	return q.String()
}

func percentText(n *int32, absent string) string {
	if n == nil {
		return absent
	}
	return strconv.Itoa(int(*n)) + "%"
}
