package storagegroup

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// csiStorageCapacities declares the namespaced kind CSIStorageCapacity.
func csiStorageCapacities() *registry.Kind {
	return declare.Kind[storagev1.CSIStorageCapacity, storagev1.CSIStorageCapacityList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "csistoragecapacities", Kind: "CSIStorageCapacity",
			Namespaced: true,
		},
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, c *storagev1.CSIStorageCapacity) { validateStorageCapacity(fld, c, nil) }),
			Warnings: declare.AdaptResult(func(c *storagev1.CSIStorageCapacity) []string {
				return podspec.SelectorWarnings(field.NewPath("nodeTopology"), c.NodeTopology)
			}),
		},
		Update: registry.Update{
			Order:                  registry.Order{registry.MetaRules, registry.UpdateRules, registry.MetaUpdateRules},
			RequireResourceVersion: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, c, old *storagev1.CSIStorageCapacity) {
				validateStorageCapacity(fld, c, old)
				fld.CheckImmutable("nodeTopology", c.NodeTopology, old.NodeTopology)
				fld.CheckImmutable("storageClassName", c.StorageClassName, old.StorageClassName)
			}),
		},
	})
}

// validateStorageCapacity validates a capacity. old is nil at creation.
func validateStorageCapacity(fld validate.Field, csiStorageCapacity, old *storagev1.CSIStorageCapacity) {
	fld.CheckSelector("nodeTopology", csiStorageCapacity.NodeTopology, old != nil && validate.HasInvalidLabelValue(old.NodeTopology))
	fld.CheckText("storageClassName", csiStorageCapacity.StorageClassName, validate.DNSSubdomain)
	if csiStorageCapacity.Capacity != nil {
		fld.CheckNonNegativeQuantity("capacity", *csiStorageCapacity.Capacity)
	}
}
