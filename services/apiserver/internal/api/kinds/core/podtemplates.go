package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// Descriptions of the columns of a pod template.
const (
	containersDesc = "Names of each container in the template."
	imagesDesc     = "Images referenced by each container in the template."
)

// podTemplates declares the namespaced kind PodTemplate.
func podTemplates(rules *podspec.Rules) *registry.Kind {
	pods := podspec.PodsOf[*corev1.PodTemplate]{
		Template: func(t *corev1.PodTemplate) *corev1.PodTemplateSpec { return &t.Template }, Path: field.NewPath("template"),
	}
	return podspec.WithPodTemplate(rules, pods, declare.Kind[corev1.PodTemplate, corev1.PodTemplateList](&registry.Kind{
		Names:          registry.Names{Version: version, Resource: "podtemplates", Kind: "PodTemplate", Namespaced: true},
		Parts:          declare.SpecAccessors(func(p *corev1.PodTemplate) *corev1.PodTemplateSpec { return &p.Template }),
		Default:        declare.Adapt(func(t *corev1.PodTemplate) { poddefaults.Template(&t.Template) }),
		DefaultedRules: poddefaults.TemplateDefaultedRules,
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, t *corev1.PodTemplate) {
				rules.ValidateTemplate(fld.Child("template"), &t.Template, nil)
			}),
		},
		Update: registry.Update{
			Generation: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, t, old *corev1.PodTemplate) {
				rules.ValidateTemplate(fld.Child("template"), &t.Template, &old.Template)
			}),
		},
		Delete: registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{Columns: []registry.Column{
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
		}},
	}))
}
