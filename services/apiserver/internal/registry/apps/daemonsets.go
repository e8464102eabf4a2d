package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/podspec"
)

func daemonSets() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "daemonsets", Singular: "daemonset", Kind: "DaemonSet",
		ShortNames: []string{"ds"}, Categories: []string{"all"}, Namespaced: true,
		New:          declare.New[appsv1.DaemonSet],
		NewList:      declare.New[appsv1.DaemonSetList],
		Stored:       registry.Stored{Prefix: "daemonsets"},
		Default:      declare.Do(defaultDaemonSet),
		Generation:   true,
		Columns:      daemonSetColumns(),
		Subresources: []registry.Subresource{declare.Status("DaemonSet")},
	}
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	s := &d.Spec
	declare.Fill(&s.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		declare.FillPtr(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		declare.FillPtr(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		declare.FillPtr(&s.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	declare.FillPtr(&s.RevisionHistoryLimit, historyLimit)
	podspec.Template(&s.Template)
}

// Some descriptions are those of an older version, as clients know them.
func daemonSetColumns() []registry.Column {
	stat := func(name string) string { return columns.Doc(extensionsv1beta1.DaemonSetStatus{}, name) }
	count := func(name, field string, n func(*appsv1.DaemonSetStatus) int32) registry.Column {
		return columns.Int(name, stat(field), func(d *appsv1.DaemonSet) int64 { return int64(n(&d.Status)) })
	}
	cols := []registry.Column{
		columns.Name(),
		count("Desired", "desiredNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.DesiredNumberScheduled }),
		count("Current", "currentNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.CurrentNumberScheduled }),
		count("Ready", "numberReady", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberReady }),
		count("Up-to-date", "updatedNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.UpdatedNumberScheduled }),
		count("Available", "numberAvailable", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberAvailable }),
		columns.Text("Node Selector", columns.Doc(corev1.PodSpec{}, "nodeSelector"), func(d *appsv1.DaemonSet) string {
			return columns.Labels(d.Spec.Template.Spec.NodeSelector)
		}),
		columns.Age(),
	}
	cols = append(cols, templateColumns(func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template })...)
	return append(cols, columns.WideText("Selector", columns.Doc(extensionsv1beta1.DaemonSetSpec{}, "selector"), func(d *appsv1.DaemonSet) string {
		return columns.Selector(d.Spec.Selector)
	}))
}
