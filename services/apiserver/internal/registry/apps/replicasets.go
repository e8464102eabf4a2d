package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/podspec"
)

func replicaSets() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "replicasets", Singular: "replicaset", Kind: "ReplicaSet",
		ShortNames: []string{"rs"}, Categories: []string{"all"}, Namespaced: true,
		New:        declare.New[appsv1.ReplicaSet],
		NewList:    declare.New[appsv1.ReplicaSetList],
		Stored:     registry.Stored{Prefix: "replicasets"},
		Default:    declare.Do(defaultReplicaSet),
		Generation: true,
		Selectable: []registry.SelectableField{{Label: "status.replicas", Absent: "0"}},
		Columns:    replicaSetColumns(),
		Subresources: []registry.Subresource{
			declare.Scale(
				func(r *appsv1.ReplicaSet) **int32 { return &r.Spec.Replicas },
				func(r *appsv1.ReplicaSet) (int32, *metav1.LabelSelector) { return r.Status.Replicas, r.Spec.Selector },
			),
			declare.Status("ReplicaSet"),
		},
	}
}

func defaultReplicaSet(r *appsv1.ReplicaSet) {
	declare.FillPtr(&r.Spec.Replicas, 1)
	podspec.Template(&r.Spec.Template)
}

// Some descriptions are those of an older version, as clients know them.
func replicaSetColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(extensionsv1beta1.ReplicaSetSpec{}, name) }
	stat := func(name string) string { return columns.Doc(appsv1.ReplicaSetStatus{}, name) }
	cols := []registry.Column{
		columns.Name(),
		columns.Int("Desired", spec("replicas"), func(r *appsv1.ReplicaSet) int64 { return int64(declare.Replicas(r.Spec.Replicas)) }),
		columns.Int("Current", stat("replicas"), func(r *appsv1.ReplicaSet) int64 { return int64(r.Status.Replicas) }),
		columns.Int("Ready", stat("readyReplicas"), func(r *appsv1.ReplicaSet) int64 { return int64(r.Status.ReadyReplicas) }),
		columns.Age(),
	}
	cols = append(cols, templateColumns(func(r *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &r.Spec.Template })...)
	return append(cols, columns.WideText("Selector", spec("selector"), func(r *appsv1.ReplicaSet) string {
		return columns.Selector(r.Spec.Selector)
	}))
}
