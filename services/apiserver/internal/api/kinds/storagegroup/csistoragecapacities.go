package storagegroup

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

func csiStorageCapacities() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "csistoragecapacities", Singular: "csistoragecapacity", Kind: "CSIStorageCapacity",
			Namespaced: true,
		},
		New:     declare.New[storagev1.CSIStorageCapacity],
		NewList: declare.New[storagev1.CSIStorageCapacityList],
		Stored:  registry.StorageForm{Prefix: "csistoragecapacities"},
		Create: registry.Create{
			Validate: declare.Rules(func(at validate.At, c *storagev1.CSIStorageCapacity) { storageCapacityRules(at, c, nil) }),
			Warnings: declare.Get(storageCapacityWarnings),
		},
		Update: registry.Update{
			Order:        registry.Order{registry.Meta, registry.Rules, registry.MetaChange},
			NeedsVersion: true,
			Validate: declare.Changes(func(at validate.At, c, old *storagev1.CSIStorageCapacity) {
				storageCapacityRules(at, c, old)
				at.Immutable("nodeTopology", c.NodeTopology, old.NodeTopology)
				at.Immutable("storageClassName", c.StorageClassName, old.StorageClassName)
			}),
		},
	}
}

func storageCapacityRules(at validate.At, c, old *storagev1.CSIStorageCapacity) {
	at.Selector("nodeTopology", c.NodeTopology, old != nil && validate.HasInvalidValue(old.NodeTopology))
	at.Text("storageClassName", c.StorageClassName, validate.DNSSubdomain)
	if c.Capacity != nil {
		at.NonNegativeQuantity("capacity", *c.Capacity)
	}
}

func storageCapacityWarnings(c *storagev1.CSIStorageCapacity) []string {
	return podspec.SelectorWarnings(field.NewPath("nodeTopology"), c.NodeTopology)
}
