package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/registry/podspec"
)

func statefulSets() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "statefulsets", Singular: "statefulset", Kind: "StatefulSet",
		ShortNames: []string{"sts"}, Categories: []string{"all"}, Namespaced: true,
		New:     declare.New[appsv1.StatefulSet],
		NewList: declare.New[appsv1.StatefulSetList],
		Stored:  registry.Stored{Prefix: "statefulsets"},
		Default: declare.Do(defaultStatefulSet),
		// The name becomes part of the pods' host names.
		ValidateName: meta.DNSLabel,
		Generation:   true,
		// A selector may name this one, which never equals anything.
		Selectable: []registry.SelectableField{{Label: "status.successful", Func: func(registry.Object) string { return "" }}},
		Columns:    statefulSetColumns(),
		Subresources: []registry.Subresource{
			declare.Scale(
				func(s *appsv1.StatefulSet) **int32 { return &s.Spec.Replicas },
				func(s *appsv1.StatefulSet) (int32, *metav1.LabelSelector) { return s.Status.Replicas, s.Spec.Selector },
			),
			declare.Status("StatefulSet"),
		},
	}
}

func defaultStatefulSet(set *appsv1.StatefulSet) {
	s := &set.Spec
	declare.FillPtr(&s.Replicas, 1)
	declare.Fill(&s.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		declare.FillPtr(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	// A strategy that is named without its block does not get one.
	if rolling := s.UpdateStrategy.RollingUpdate; rolling != nil && s.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		declare.FillPtr(&rolling.Partition, 0)
	}
	declare.FillPtr(&s.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	declare.Fill(&s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	declare.Fill(&s.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	declare.FillPtr(&s.RevisionHistoryLimit, historyLimit)
	podspec.Template(&s.Template)
	for i := range s.VolumeClaimTemplates {
		c := &s.VolumeClaimTemplates[i]
		declare.Fill(&c.APIVersion, "v1")
		declare.Fill(&c.Kind, "PersistentVolumeClaim")
		podspec.Claim(c)
	}
}

func statefulSetColumns() []registry.Column {
	return append([]registry.Column{
		columns.Name(),
		columns.Text("Ready", readyDesc, func(s *appsv1.StatefulSet) string { return readyText(s.Status.ReadyReplicas, s.Spec.Replicas) }),
		columns.Age(),
	}, templateColumns(func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template })...)
}
