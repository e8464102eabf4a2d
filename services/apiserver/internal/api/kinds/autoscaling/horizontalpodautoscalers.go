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

func horizontalPodAutoscalers(g gates) *registry.Kind {
	k := autoscaler()
	k.Version = "v2"
	k.New = declare.New[autoscalingv2.HorizontalPodAutoscaler]
	k.NewList = declare.New[autoscalingv2.HorizontalPodAutoscalerList]
	k.Parts = declare.SpecStatusAccessors(
		func(h *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscalerSpec, *autoscalingv2.HorizontalPodAutoscalerStatus) {
			return &h.Spec, &h.Status
		},
	)
	k.Default = declare.Adapt(defaultAutoscaler)
	k.Create.Prepare = declare.Adapt(func(h *autoscalingv2.HorizontalPodAutoscaler) { g.drop(h, nil) })
	k.Create.Validate = declare.AdaptValidation(
		func(fld validate.Field, h *autoscalingv2.HorizontalPodAutoscaler) { g.rules(fld, h, nil) },
	)
	k.Update.Prepare = declare.AdaptUpdate(g.drop)
	k.Update.Validate = declare.AdaptUpdateValidation(g.rules)
	k.Subresources = []registry.Subresource{declare.ValidatedStatus("HorizontalPodAutoscaler", validateStatus)}
	return k
}

func horizontalPodAutoscalersV1(g gates) *registry.Kind {
	k := autoscaler()
	k.Version = "v1"
	k.New = declare.New[autoscalingv1.HorizontalPodAutoscaler]
	k.NewList = declare.New[autoscalingv1.HorizontalPodAutoscalerList]
	k.Parts = partsV1()
	k.Default = declare.Adapt(defaultAutoscalerV1)
	// A manager that sends the status in annotations owns these annotations.
	resetStatus := func(h, old registry.Object) { moveAnnotations(h, old, currentMetricsAnnotation, conditionsAnnotation) }
	k.Create.Prepare = func(h registry.Object) {
		resetStatus(h, nil)
		g.dropV1(h.(*autoscalingv1.HorizontalPodAutoscaler), nil)
	}
	k.Update.Prepare = func(h, old registry.Object) {
		resetStatus(h, old)
		g.dropV1(h.(*autoscalingv1.HorizontalPodAutoscaler), old.(*autoscalingv1.HorizontalPodAutoscaler))
	}
	k.Create.Validate = declare.AdaptValidation(
		func(fld validate.Field, h *autoscalingv1.HorizontalPodAutoscaler) { g.rules(fld, toV2(h), nil) },
	)
	k.Update.Validate = declare.AdaptUpdateValidation(func(fld validate.Field, h, old *autoscalingv1.HorizontalPodAutoscaler) {
		g.rules(fld, toV2(h), toV2(old))
	})
	k.Subresources = []registry.Subresource{
		declare.ValidatedStatus("HorizontalPodAutoscaler", func(fld validate.Field, h, old *autoscalingv1.HorizontalPodAutoscaler) {
			validateStatus(fld, toV2(h), toV2(old))
		}),
	}
	k.Stored.Version = autoscalingv2.SchemeGroupVersion
	k.Stored.New = declare.New[autoscalingv2.HorizontalPodAutoscaler]
	k.Stored.ToStored = func(served registry.Object) (registry.Object, error) {
		return toV2(served.(*autoscalingv1.HorizontalPodAutoscaler)), nil
	}
	k.Stored.FromStored = func(stored registry.Object) (registry.Object, error) {
		h := stored.(*autoscalingv2.HorizontalPodAutoscaler)
		if h.Spec.Behavior != nil {
			h = h.DeepCopy()
			defaultBehavior(h.Spec.Behavior)
		}
		return toV1(h)
	}
	k.Presentation.ColumnsFromStored = true
	return k
}

// partsV1 returns Parts that include the annotations.
func partsV1() registry.SpecStatusAccessors {
	p := declare.SpecStatusAccessors(
		func(h *autoscalingv1.HorizontalPodAutoscaler) (*autoscalingv1.HorizontalPodAutoscalerSpec, *autoscalingv1.HorizontalPodAutoscalerStatus) {
			return &h.Spec, &h.Status
		},
	)
	spec := p.CopySpec
	p.CopySpec = func(to, from registry.Object) {
		spec(to, from)
		moveAnnotations(to, from, metricsAnnotation, behaviorAnnotation)
	}
	return p
}

// moveAnnotations sets annotations to those of another object; nil stands for none.
func moveAnnotations(to, from registry.Object, keys ...string) {
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

func targetText(m *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	now := measuredValueOf(m.Type, status)
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

// measuredValueOf returns the measured value of a metric of the type. It is empty without a status.
func measuredValueOf(typ autoscalingv2.MetricSourceType, s *autoscalingv2.MetricStatus) autoscalingv2.MetricValueStatus {
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
