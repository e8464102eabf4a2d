package resource

import (
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func deviceClasses() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: stored, Resource: "deviceclasses", Singular: "deviceclass", Kind: "DeviceClass",
		New:        declare.New[resourcev1beta1.DeviceClass],
		NewList:    declare.New[resourcev1beta1.DeviceClassList],
		Stored:     registry.Stored{Prefix: "deviceclasses"},
		Generation: true,
		Columns:    []registry.Column{columns.Name(), columns.Age()},
	}
}

func deviceClassesBeta2() *registry.Kind {
	k := deviceClasses()
	k.Version = newest
	k.New, k.NewList = declare.New[resourcev1beta2.DeviceClass], declare.New[resourcev1beta2.DeviceClassList]
	k.Stored = storedAs[resourcev1beta1.DeviceClass, resourcev1beta2.DeviceClass]("deviceclasses", same, same)
	return k
}
