package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

func replicaSets(rules *podspec.Rules) *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "replicasets", Singular: "replicaset", Kind: "ReplicaSet",
		ShortNames: []string{"rs"}, Categories: []string{"all"}, Namespaced: true,
		New:           declare.New[appsv1.ReplicaSet],
		NewList:       declare.New[appsv1.ReplicaSetList],
		Stored:        registry.Stored{Prefix: "replicasets"},
		Default:       declare.Do(defaultReplicaSet),
		Generation:    true,
		PrepareCreate: declare.Do(func(r *appsv1.ReplicaSet) { rules.DropTemplate(&r.Spec.Template, nil) }),
		PrepareUpdate: declare.Change(func(r, old *appsv1.ReplicaSet) { rules.DropTemplate(&r.Spec.Template, &old.Spec.Template) }),
		Validate: declare.Get(func(r *appsv1.ReplicaSet) field.ErrorList {
			return validate.Check(func(at validate.At) { replicaSetRules(at.Child("spec"), rules, &r.Spec, nil) })
		}),
		ValidateUpdate: declare.GetChange(func(r, old *appsv1.ReplicaSet) field.ErrorList {
			return validate.Check(func(at validate.At) {
				replicaSetRules(at.Child("spec"), rules, &r.Spec, &old.Spec.Template)
				at.Child("spec").Immutable("selector", r.Spec.Selector, old.Spec.Selector)
			})
		}),
		Warnings: declare.Get(func(r *appsv1.ReplicaSet) []string {
			return podspec.TemplateWarnings(templatePath(), &r.Spec.Template)
		}),
		UpdateWarnings: declare.GetChange(func(r, old *appsv1.ReplicaSet) []string {
			return changedTemplateWarnings(&r.Spec.Template, &old.Spec.Template)
		}),
		Selectable: []registry.SelectableField{{Label: "status.replicas", Absent: "0"}},
		Columns:    replicaSetColumns(),
		Subresources: []registry.Subresource{
			declare.Scale(
				func(r *appsv1.ReplicaSet) **int32 { return &r.Spec.Replicas },
				func(r *appsv1.ReplicaSet) (int32, *metav1.LabelSelector) { return r.Status.Replicas, r.Spec.Selector },
			),
			declare.CheckedStatus("ReplicaSet", checkReplicaSetStatus),
		},
	}
}

func defaultReplicaSet(r *appsv1.ReplicaSet) {
	declare.FillPtr(&r.Spec.Replicas, 1)
	podspec.Template(&r.Spec.Template)
}

func replicaSetRules(at validate.At, rules *podspec.Rules, s *appsv1.ReplicaSetSpec, old *corev1.PodTemplateSpec) {
	validate.OptionalNonNegative(at, "replicas", s.Replicas)
	at.NonNegative("minReadySeconds", int64(s.MinReadySeconds))
	replicaTemplateRules(at, rules, s.Selector, &s.Template, old)
}

func checkReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	return validate.Check(func(at validate.At) {
		s, status := &r.Status, at.Child("status")
		status.NonNegative("replicas", int64(s.Replicas))
		status.NonNegative("fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
		status.NonNegative("readyReplicas", int64(s.ReadyReplicas))
		status.NonNegative("availableReplicas", int64(s.AvailableReplicas))
		status.NonNegative("observedGeneration", s.ObservedGeneration)
		validate.AtMost(status, "fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas, "status.replicas")
		validate.AtMost(status, "readyReplicas", s.ReadyReplicas, s.Replicas, "status.replicas")
		validate.AtMost(status, "availableReplicas", s.AvailableReplicas, s.Replicas, "status.replicas")
		validate.AtMost(status, "availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")
	})
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
