package core

import (
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/podspec"
)

func replicationControllers() *registry.Kind {
	return &registry.Kind{
		Version: version, Resource: "replicationcontrollers", Singular: "replicationcontroller", Kind: "ReplicationController",
		ShortNames: []string{"rc"}, Categories: []string{"all"}, Namespaced: true,
		New:           declare.New[corev1.ReplicationController],
		NewList:       declare.New[corev1.ReplicationControllerList],
		Stored:        registry.Stored{Prefix: "controllers"},
		Default:       declare.Do(defaultController),
		Generation:    true,
		DefaultOrphan: true,
		Selectable:    []registry.SelectableField{{Label: "status.replicas", Absent: "0"}},
		Columns:       controllerColumns(),
		Subresources: []registry.Subresource{
			{
				Name: "scale", Verbs: declare.Edit(),
				GVK: autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
				New: declare.New[autoscalingv1.Scale],
				Scale: &registry.Scale{
					Replicas: declare.Get(wantedReplicas),
					SetReplicas: func(o registry.Object, n int32) {
						o.(*corev1.ReplicationController).Spec.Replicas = &n
					},
					Status: func(o registry.Object) (int32, string) {
						rc := o.(*corev1.ReplicationController)
						return rc.Status.Replicas, labels.SelectorFromSet(rc.Spec.Selector).String()
					},
				},
			},
			declare.View("status", "ReplicationController", declare.Change(func(rc, old *corev1.ReplicationController) { rc.Spec = old.Spec })),
		},
	}
}

// defaultController labels and selects by the labels of the pods.
func defaultController(rc *corev1.ReplicationController) {
	declare.FillPtr(&rc.Spec.Replicas, 1)
	if rc.Spec.Template == nil {
		return
	}
	podspec.Template(rc.Spec.Template)
	if len(rc.Spec.Selector) == 0 {
		rc.Spec.Selector = maps.Clone(rc.Spec.Template.Labels)
	}
	if len(rc.Labels) == 0 {
		rc.Labels = maps.Clone(rc.Spec.Template.Labels)
	}
}

func controllerColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(corev1.ReplicationControllerSpec{}, name) }
	stat := func(name string) string { return columns.Doc(corev1.ReplicationControllerStatus{}, name) }
	containers := func(rc *corev1.ReplicationController) []corev1.Container {
		if rc.Spec.Template == nil {
			return nil
		}
		return rc.Spec.Template.Spec.Containers
	}
	return []registry.Column{
		columns.Name(),
		columns.Int("Desired", spec("replicas"), func(rc *corev1.ReplicationController) int64 { return int64(wantedReplicas(rc)) }),
		columns.Int("Current", stat("replicas"), func(rc *corev1.ReplicationController) int64 { return int64(rc.Status.Replicas) }),
		columns.Int("Ready", stat("readyReplicas"), func(rc *corev1.ReplicationController) int64 { return int64(rc.Status.ReadyReplicas) }),
		columns.Age(),
		columns.WideText("Containers", containersDesc, func(rc *corev1.ReplicationController) string {
			return columns.ContainerNames(containers(rc))
		}),
		columns.WideText("Images", imagesDesc, func(rc *corev1.ReplicationController) string {
			return columns.ContainerImages(containers(rc))
		}),
		columns.WideText("Selector", spec("selector"), func(rc *corev1.ReplicationController) string {
			return columns.Labels(rc.Spec.Selector)
		}),
	}
}

// wantedReplicas is 1 unless said otherwise.
func wantedReplicas(rc *corev1.ReplicationController) int32 {
	if rc.Spec.Replicas == nil {
		return 1
	}
	return *rc.Spec.Replicas
}
