package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// replicaSets declares the namespaced kind ReplicaSet.
func replicaSets(rules *podspec.Rules, terminating terminatingGate) *registry.Kind {
	pods := podspec.PodsOf[*appsv1.ReplicaSet]{
		Template:  func(r *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &r.Spec.Template },
		Path:      field.NewPath("spec", "template"),
		HostNames: true,
	}
	return podspec.WithPodTemplate(rules, pods, declare.Kind[appsv1.ReplicaSet, appsv1.ReplicaSetList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "replicasets", Kind: "ReplicaSet", ShortNames: []string{"rs"},
			Categories: []string{"all"}, Namespaced: true,
		},
		Parts: declare.SpecStatusAccessors(func(r *appsv1.ReplicaSet) (*appsv1.ReplicaSetSpec, *appsv1.ReplicaSetStatus) {
			return &r.Spec, &r.Status
		}),
		Default:        declare.Adapt(defaultReplicaSet),
		DefaultedRules: replicaSetDefaultedRules,
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, r *appsv1.ReplicaSet) {
				validateReplicaSet(fld.Child("spec"), rules, &r.Spec, nil)
			}),
		},
		Update: registry.Update{
			Order:      registry.Order{registry.MetaRules, registry.MetaUpdateRules, registry.UpdateRules},
			Generation: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, r, old *appsv1.ReplicaSet) {
				fld.RecordTwice(func() { validateReplicaSet(fld.Child("spec"), rules, &r.Spec, &old.Spec.Template) })
				fld.Child("spec").CheckImmutable("selector", r.Spec.Selector, old.Spec.Selector)
			}),
		},
		Presentation: registry.Presentation{Columns: replicaSetColumns()},
		Subresources: []registry.Subresource{
			declare.Scale(
				func(r *appsv1.ReplicaSet) **int32 { return &r.Spec.Replicas },
				func(r *appsv1.ReplicaSet) (int32, *metav1.LabelSelector) { return r.Status.Replicas, r.Spec.Selector },
			),
			declare.ValidatedView("status", "ReplicaSet", func(r, old *appsv1.ReplicaSet) {
				r.Spec = old.Spec
				terminating.drop(&r.Status.TerminatingReplicas, &old.Status.TerminatingReplicas)
			}, validateReplicaSetStatus),
		},
	}))
}

func defaultReplicaSet(r *appsv1.ReplicaSet) {
	declare.SetDefaultPtr(&r.Spec.Replicas, 1)
	poddefaults.Template(&r.Spec.Template)
}

func validateReplicaSet(fld validate.Field, rules *podspec.Rules, s *appsv1.ReplicaSetSpec, old *corev1.PodTemplateSpec) {
	validate.OptionalNonNegative(fld, "replicas", s.Replicas)
	fld.CheckNonNegative("minReadySeconds", int64(s.MinReadySeconds))
	validateReplicaTemplate(fld, rules, s.Selector, &s.Template, old)
}

func validateReplicaSetStatus(fld validate.Field, r, _ *appsv1.ReplicaSet) {
	s, status := &r.Status, fld.Child("status")
	status.CheckNonNegative("replicas", int64(s.Replicas))
	status.CheckNonNegative("fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	status.CheckNonNegative("readyReplicas", int64(s.ReadyReplicas))
	status.CheckNonNegative("availableReplicas", int64(s.AvailableReplicas))
	validate.OptionalNonNegative(status, "terminatingReplicas", s.TerminatingReplicas)
	status.CheckNonNegative("observedGeneration", s.ObservedGeneration)
	validate.AtMost(status, "fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas, "status.replicas")
	validate.AtMost(status, "readyReplicas", s.ReadyReplicas, s.Replicas, "status.replicas")
	validate.AtMost(status, "availableReplicas", s.AvailableReplicas, s.Replicas, "status.replicas")
	validate.AtMost(status, "availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")
}

// replicaSetColumns uses some descriptions of an older version, as in Kubernetes.
func replicaSetColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(extensionsv1beta1.ReplicaSetSpec{}, name) }
	stat := func(name string) string { return columns.Doc(appsv1.ReplicaSetStatus{}, name) }
	cols := []registry.Column{
		columns.Name(),
		columns.Int("Desired", spec("replicas"), func(r *appsv1.ReplicaSet) int64 { return int64(ptr.Deref(r.Spec.Replicas, 1)) }),
		columns.Int("Current", stat("replicas"), func(r *appsv1.ReplicaSet) int64 { return int64(r.Status.Replicas) }),
		columns.Int("Ready", stat("readyReplicas"), func(r *appsv1.ReplicaSet) int64 { return int64(r.Status.ReadyReplicas) }),
		columns.Age(),
	}
	cols = append(cols, templateColumns(func(r *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &r.Spec.Template })...)
	return append(cols, columns.WideText("Selector", spec("selector"), func(r *appsv1.ReplicaSet) string {
		return columns.Selector(r.Spec.Selector)
	}))
}
