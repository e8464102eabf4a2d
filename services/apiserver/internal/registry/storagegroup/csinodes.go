package storagegroup

import (
	storagev1 "k8s.io/api/storage/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func csiNodes() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "csinodes", Singular: "csinode", Kind: "CSINode",
		New:                declare.New[storagev1.CSINode],
		NewList:            declare.New[storagev1.CSINodeList],
		Stored:             registry.Stored{Prefix: "csinodes"},
		UpdateNeedsVersion: true,
		ReturnDeleted:      true,
		Columns: []registry.Column{
			columns.Name(),
			columns.Int("Drivers", "Drivers indicates the number of CSI drivers registered on the node", func(n *storagev1.CSINode) int64 {
				return int64(len(n.Spec.Drivers))
			}),
			columns.Age(),
		},
	}
}
