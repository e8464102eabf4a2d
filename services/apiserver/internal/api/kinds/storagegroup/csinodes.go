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

// csiNodes declares the kind. counts is the gate MutableCSINodeAllocatableCount.
func csiNodes(counts bool) *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "csinodes", Singular: "csinode", Kind: "CSINode",
		},
		New:     declare.New[storagev1.CSINode],
		NewList: declare.New[storagev1.CSINodeList],
		Stored:  registry.StorageForm{Prefix: "csinodes"},
		Create:  registry.Create{Validate: declare.AdaptValidation(validateDrivers)},
		Update: registry.Update{
			// Kubernetes validates a changed object like a new one twice: before it validates the
			// change, and as a part of that.
			Order: registry.Order{
				registry.MetaRules, registry.CreateRules,
				registry.MetaRules, registry.CreateRules,
				registry.UpdateRules,
			},
			RequireResourceVersion: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, n, old *storagev1.CSINode) {
				forbidDriverChanges(fld, n, old, counts)
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
	}
}

// longestNodeID is the maximum length in bytes of a driver's name for a node.
const longestNodeID = 256

func validateDrivers(fld validate.Field, n *storagev1.CSINode) {
	names := validate.Set[string]{}
	validate.Each(fld.Child("spec"), "drivers", n.Spec.Drivers, func(fld validate.Field, d *storagev1.CSINodeDriver) {
		podspec.ValidateCSIDriverName(fld, "name", d.Name)
		fld.RequireSet("nodeID", d.NodeID != "")
		if len(d.NodeID) > longestNodeID {
			fld.Invalid("nodeID", d.NodeID, fmt.Sprintf("must be %d characters or less", longestNodeID))
		}
		if d.Allocatable != nil {
			validate.OptionalNonNegative(fld.Child("allocatable"), "count", d.Allocatable.Count)
		}
		validate.Unique(fld, "name", d.Name, names)
		// As in Kubernetes, the error path of a key is that of the driver.
		keys := validate.Set[string]{}
		for _, key := range d.TopologyKeys {
			fld.RequireSet("", key != "")
			validate.Unique(fld, "", key, keys)
			fld.CheckText("", key, validate.QualifiedName)
		}
	})
}

// forbidDriverChanges rejects changes of existing drivers. With counts, their allocatable counts
// may change.
func forbidDriverChanges(fld validate.Field, n, old *storagev1.CSINode, counts bool) {
	now := validate.KeyIndex(n.Spec.Drivers, func(d *storagev1.CSINodeDriver) string { return d.Name })
	for i := range old.Spec.Drivers {
		was := &old.Spec.Drivers[i]
		if j, there := now[was.Name]; there {
			is, was := n.Spec.Drivers[j], *was
			if counts {
				is.Allocatable = nil
				was.Allocatable = nil
			}
			fld.Child("spec").CheckImmutable("drivers", is, was)
		}
	}
}
