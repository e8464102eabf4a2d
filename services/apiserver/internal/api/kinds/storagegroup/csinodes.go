package storagegroup

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// csiNodes declares the cluster-scoped kind CSINode. mutableCount is the feature gate
// MutableCSINodeAllocatableCount.
func csiNodes(mutableCount bool) *registry.Kind {
	return declare.Kind[storagev1.CSINode, storagev1.CSINodeList](&registry.Kind{
		Names:  registry.Names{Group: group, Version: version, Resource: "csinodes", Kind: "CSINode"},
		Create: registry.Create{Validate: declare.AdaptValidation(validateDrivers)},
		Update: registry.Update{
			// As in Kubernetes, errors of the rules for new objects occur twice.
			Order: registry.Order{
				registry.MetaRules, registry.CreateRules,
				registry.MetaRules, registry.CreateRules,
				registry.UpdateRules,
			},
			RequireResourceVersion: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, n, old *storagev1.CSINode) {
				forbidDriverChanges(fld, n, old, mutableCount)
			}),
		},
		Delete: registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Int(
				"Drivers",
				"Drivers indicates the number of CSI drivers registered on the node",
				func(n *storagev1.CSINode) int64 {
					return int64(len(n.Spec.Drivers))
				},
			),
			columns.Age(),
		}},
	})
}

// maxNodeID is the maximum length in bytes of a driver's name for a node.
const maxNodeID = 256

// validateDrivers requires valid drivers with distinct names.
func validateDrivers(fld validate.Field, n *storagev1.CSINode) {
	names := validate.Set[string]{}
	validate.Each(fld.Child("spec"), "drivers", n.Spec.Drivers, func(fld validate.Field, csiNodeDriver *storagev1.CSINodeDriver) {
		podspec.ValidateCSIDriverName(fld, "name", csiNodeDriver.Name)
		fld.RequireSet("nodeID", csiNodeDriver.NodeID != "")
		if len(csiNodeDriver.NodeID) > maxNodeID {
			fld.Invalid("nodeID", csiNodeDriver.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID))
		}
		if csiNodeDriver.Allocatable != nil {
			validate.OptionalNonNegative(fld.Child("allocatable"), "count", csiNodeDriver.Allocatable.Count)
		}
		validate.Unique(fld, "name", csiNodeDriver.Name, names)
		// As in Kubernetes, the error path of a key is that of the driver.
		keys := validate.Set[string]{}
		for _, key := range csiNodeDriver.TopologyKeys {
			fld.RequireSet("", key != "")
			validate.Unique(fld, "", key, keys)
			fld.CheckText("", key, validate.QualifiedName)
		}
	})
}

// forbidDriverChanges rejects changes of existing drivers. With mutableCount, their allocatable counts
// may change.
func forbidDriverChanges(fld validate.Field, csiNode, old *storagev1.CSINode, mutableCount bool) {
	indexByName := validate.KeyIndex(csiNode.Spec.Drivers, func(d *storagev1.CSINodeDriver) string { return d.Name })
	for _, oldDriver := range old.Spec.Drivers {
		i, exists := indexByName[oldDriver.Name]
		if !exists {
			continue
		}
		driver := csiNode.Spec.Drivers[i]
		if mutableCount {
			driver.Allocatable = nil
			oldDriver.Allocatable = nil
		}
		fld.Child("spec").CheckImmutable("drivers", driver, oldDriver)
	}
}
