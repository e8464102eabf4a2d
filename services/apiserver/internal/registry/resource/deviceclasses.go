package resource

import (
	resourcev1beta1 "k8s.io/api/resource/v1beta1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func deviceClasses() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "deviceclasses", Singular: "deviceclass", Kind: "DeviceClass",
		New:        declare.New[resourcev1beta1.DeviceClass],
		NewList:    declare.New[resourcev1beta1.DeviceClassList],
		Stored:     registry.Stored{Prefix: "deviceclasses"},
		Generation: true,
		Columns:    []registry.Column{columns.Name(), columns.Age()},
	}
}
