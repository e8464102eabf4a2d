// Package apps declares the kinds of the apps group, v1, one file per kind. It
// keeps no state; Kinds makes fresh values for the catalog of built-in kinds.
package apps

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
)

const (
	group   = "apps"
	version = "v1"
)

// Kinds of the group, in the order of their resources.
func Kinds() []*registry.Kind {
	return []*registry.Kind{
		controllerRevisions(),
		daemonSets(),
		deployments(),
		replicaSets(),
		statefulSets(),
	}
}

// templateColumns tell the containers of the pods that an object makes.
func templateColumns[T registry.Object](template func(T) *corev1.PodTemplateSpec) []registry.Column {
	return []registry.Column{
		columns.WideText("Containers", "Names of each container in the template.", func(o T) string {
			return columns.ContainerNames(template(o).Spec.Containers)
		}),
		columns.WideText("Images", "Images referenced by each container in the template.", func(o T) string {
			return columns.ContainerImages(template(o).Spec.Containers)
		}),
	}
}
