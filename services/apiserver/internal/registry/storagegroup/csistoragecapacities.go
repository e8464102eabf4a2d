package storagegroup

import (
	storagev1 "k8s.io/api/storage/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

func csiStorageCapacities() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "csistoragecapacities", Singular: "csistoragecapacity", Kind: "CSIStorageCapacity",
		Namespaced:         true,
		New:                declare.New[storagev1.CSIStorageCapacity],
		NewList:            declare.New[storagev1.CSIStorageCapacityList],
		Stored:             registry.Stored{Prefix: "csistoragecapacities"},
		UpdateNeedsVersion: true,
	}
}
