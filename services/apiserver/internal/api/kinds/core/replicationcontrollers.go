package core

import (
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// replicationControllers declares the namespaced kind ReplicationController.
func replicationControllers(rules *podspec.Rules) *registry.Kind {
	pods := podspec.PodsOf[*corev1.ReplicationController]{
		Template:  func(rc *corev1.ReplicationController) *corev1.PodTemplateSpec { return rc.Spec.Template },
		Path:      field.NewPath("spec", "template"),
		HostNames: true,
		WarnOfOld: true, // as Kubernetes
	}
	return podspec.WithPodTemplate(rules, pods, declare.Kind[corev1.ReplicationController, corev1.ReplicationControllerList](&registry.Kind{
		Names: registry.Names{
			Version: version, Resource: "replicationcontrollers", Kind: "ReplicationController",
			ShortNames: []string{"rc"}, Categories: []string{"all"}, Namespaced: true,
		},
		Parts: declare.SpecStatusAccessors(func(r *corev1.ReplicationController) (*corev1.ReplicationControllerSpec, *corev1.ReplicationControllerStatus) {
			return &r.Spec, &r.Status
		}),
		Stored:                registry.StorageForm{Prefix: "controllers"},
		Default:               declare.Adapt(defaultController),
		DeclarativeValidation: declare.AdaptResult(declaredControllerRules),
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, rc *corev1.ReplicationController) {
				validateController(fld.Child("spec"), rules, &rc.Spec, nil)
			}),
		},
		Update: registry.Update{
			Order:      registry.Order{registry.MetaRules, registry.MetaUpdateRules, registry.UpdateRules},
			Generation: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, rc, old *corev1.ReplicationController) {
				fld.RecordTwice(func() { validateController(fld.Child("spec"), rules, &rc.Spec, old.Spec.Template) })
			}),
		},
		Delete: registry.Delete{Orphan: true},
		Presentation: registry.Presentation{
			Selectable: []registry.SelectableField{{Label: "status.replicas"}},
			Columns:    controllerColumns(),
		},
		Subresources: []registry.Subresource{
			{
				Name:  "scale",
				Verbs: declare.ViewVerbs(),
				GVK:   autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
				New:   declare.New[autoscalingv1.Scale],
				Scale: &registry.Scale{
					Replicas: declare.AdaptResult(wantedReplicas),
					SetReplicas: func(o registry.Object, n int32) {
						o.(*corev1.ReplicationController).Spec.Replicas = &n
					},
					Status: func(o registry.Object) (int32, string) {
						rc := o.(*corev1.ReplicationController)
						return rc.Status.Replicas, labels.SelectorFromSet(rc.Spec.Selector).String()
					},
				},
			},
			declare.ValidatedView("status", "ReplicationController",
				func(rc, old *corev1.ReplicationController) { rc.Spec = old.Spec }, validateControllerStatus),
		},
	}))
}

// defaultController sets missing labels and a missing selector from the labels of the pods.
func defaultController(replicationController *corev1.ReplicationController) {
	declare.SetDefaultPtr(&replicationController.Spec.Replicas, 1)
	if replicationController.Spec.Template == nil {
		return
	}
	poddefaults.Template(replicationController.Spec.Template)
	if len(replicationController.Spec.Selector) == 0 {
		replicationController.Spec.Selector = maps.Clone(replicationController.Spec.Template.Labels)
	}
	if len(replicationController.Labels) == 0 {
		replicationController.Labels = maps.Clone(replicationController.Spec.Template.Labels)
	}
}

func validateController(
	fld validate.Field,
	rules *podspec.Rules,
	spec *corev1.ReplicationControllerSpec,
	old *corev1.PodTemplateSpec,
) {
	fld.CoveredByDeclarative("minimum", func() { fld.CheckNonNegative("minReadySeconds", int64(spec.MinReadySeconds)) })
	fld.RequireSet("selector", len(spec.Selector) > 0)
	if spec.Replicas == nil {
		fld.CoveredByDeclarative("", func() { fld.Required("replicas", "") })
	} else {
		fld.CoveredByDeclarative("minimum", func() { fld.CheckNonNegative("replicas", int64(*spec.Replicas)) })
	}
	if spec.Template == nil {
		fld.Required("template", "")
		return
	}
	if len(spec.Selector) > 0 && !labels.SelectorFromSet(spec.Selector).Matches(labels.Set(spec.Template.Labels)) {
		fld.Child("template", "metadata").Invalid("labels", spec.Template.Labels, "`selector` does not match template `labels`")
	}
	rules.ValidateReplicatedTemplate(fld.Child("template"), spec.Template, old, "ReplicationController")
}

// declaredControllerRules runs the declarative validation of the type.
func declaredControllerRules(replicationController *corev1.ReplicationController) field.ErrorList {
	return validate.Check(func(fld validate.Field) {
		spec := fld.Child("spec")
		validate.Declarative(spec, "replicas", replicationController.Spec.Replicas, validate.Required[int32](), validate.Minimum(int32(0)))
		validate.Declarative(spec, "minReadySeconds", &replicationController.Spec.MinReadySeconds, validate.Minimum(int32(0)))
	})
}

func validateControllerStatus(fld validate.Field, rc, _ *corev1.ReplicationController) {
	s, status := &rc.Status, fld.Child("status")
	status.CheckNonNegative("replicas", int64(s.Replicas))
	status.CheckNonNegative("fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	status.CheckNonNegative("readyReplicas", int64(s.ReadyReplicas))
	status.CheckNonNegative("availableReplicas", int64(s.AvailableReplicas))
	status.CheckNonNegative("observedGeneration", s.ObservedGeneration)
	validate.AtMost(status, "fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas, "status.replicas")
	validate.AtMost(status, "readyReplicas", s.ReadyReplicas, s.Replicas, "status.replicas")
	validate.AtMost(status, "availableReplicas", s.AvailableReplicas, s.Replicas, "status.replicas")
	validate.AtMost(status, "availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")
}

func controllerColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(corev1.ReplicationControllerSpec{}, name) }
	stat := func(name string) string { return columns.Doc(corev1.ReplicationControllerStatus{}, name) }
	containers := func(replicationController *corev1.ReplicationController) []corev1.Container {
		if replicationController.Spec.Template == nil {
			return nil
		}
		return replicationController.Spec.Template.Spec.Containers
	}
	return []registry.Column{
		columns.Name(),
		columns.Int("Desired", spec("replicas"), func(replicationController *corev1.ReplicationController) int64 {
			return int64(wantedReplicas(replicationController))
		}),
		columns.Int("Current", stat("replicas"), func(replicationController *corev1.ReplicationController) int64 {
			return int64(replicationController.Status.Replicas)
		}),
		columns.Int(
			"Ready",
			stat("readyReplicas"),
			func(replicationController *corev1.ReplicationController) int64 {
				return int64(replicationController.Status.ReadyReplicas)
			},
		),
		columns.Age(),
		columns.WideText("Containers", containersDesc, func(replicationController *corev1.ReplicationController) string {
			return columns.ContainerNames(containers(replicationController))
		}),
		columns.WideText("Images", imagesDesc, func(replicationController *corev1.ReplicationController) string {
			return columns.ContainerImages(containers(replicationController))
		}),
		columns.WideText("Selector", spec("selector"), func(replicationController *corev1.ReplicationController) string {
			return columns.Labels(replicationController.Spec.Selector)
		}),
	}
}

// wantedReplicas returns the number of replicas, which is 1 by default.
func wantedReplicas(replicationController *corev1.ReplicationController) int32 {
	if replicationController.Spec.Replicas == nil {
		return 1
	}
	return *replicationController.Spec.Replicas
}
