package core

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
)

func bindings() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Version: version, Resource: "bindings", Singular: "binding", Kind: "Binding",
			Namespaced:   true,
			ValidateName: meta.PathSegment,
		},
		Virtual: true,
		Verbs:   []string{"create"},
		New:     declare.New[corev1.Binding],
	}
}
