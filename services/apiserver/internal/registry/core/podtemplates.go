package core

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/podspec"
)

// Descriptions of the columns that show a pod template.
const (
	containersDesc = "Names of each container in the template."
	imagesDesc     = "Images referenced by each container in the template."
)

func podTemplates() *registry.Kind {
	return &registry.Kind{
		Version: version, Resource: "podtemplates", Singular: "podtemplate", Kind: "PodTemplate",
		Namespaced:    true,
		New:           declare.New[corev1.PodTemplate],
		NewList:       declare.New[corev1.PodTemplateList],
		Stored:        registry.Stored{Prefix: "podtemplates"},
		Default:       declare.Do(func(t *corev1.PodTemplate) { podspec.Template(&t.Template) }),
		Generation:    true,
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
