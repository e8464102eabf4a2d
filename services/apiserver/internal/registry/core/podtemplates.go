package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

// Descriptions of the columns that show a pod template.
const (
	containersDesc = "Names of each container in the template."
	imagesDesc     = "Images referenced by each container in the template."
)

func podTemplates(rules *podspec.Rules) *registry.Kind {
	return &registry.Kind{
		Version: version, Resource: "podtemplates", Singular: "podtemplate", Kind: "PodTemplate",
		Namespaced:    true,
		New:           declare.New[corev1.PodTemplate],
		NewList:       declare.New[corev1.PodTemplateList],
		Stored:        registry.Stored{Prefix: "podtemplates"},
		Default:       declare.Do(func(t *corev1.PodTemplate) { podspec.Template(&t.Template) }),
		Generation:    true,
		PrepareCreate: declare.Do(func(t *corev1.PodTemplate) { rules.DropTemplate(&t.Template, nil) }),
		PrepareUpdate: declare.Change(func(t, old *corev1.PodTemplate) { rules.DropTemplate(&t.Template, &old.Template) }),
		Validate: declare.Get(func(t *corev1.PodTemplate) field.ErrorList {
			return validate.Check(func(at validate.At) { rules.Template(at.Child("template"), &t.Template, nil) })
		}),
		ValidateUpdate: declare.GetChange(func(t, old *corev1.PodTemplate) field.ErrorList {
			return validate.Check(func(at validate.At) { rules.Template(at.Child("template"), &t.Template, &old.Template) })
		}),
		Warnings: declare.Get(func(t *corev1.PodTemplate) []string {
			return podspec.TemplateWarnings(field.NewPath("template"), &t.Template)
		}),
		UpdateWarnings: declare.GetChange(func(t, old *corev1.PodTemplate) []string {
			if validate.Same(t.Template, old.Template) {
				return nil
			}
			return podspec.TemplateWarnings(field.NewPath("template"), &t.Template)
		}),
		ReturnDeleted: true,
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("Containers", containersDesc, func(t *corev1.PodTemplate) string {
				return columns.ContainerNames(t.Template.Spec.Containers)
			}),
			columns.Text("Images", imagesDesc, func(t *corev1.PodTemplate) string {
				return columns.ContainerImages(t.Template.Spec.Containers)
			}),
			columns.Text("Pod Labels", "The labels for the pod template.", func(t *corev1.PodTemplate) string {
				return columns.Labels(t.Template.Labels)
			}),
		},
	}
}
