package nodegroup

import (
	nodev1 "k8s.io/api/node/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/podspec"
)

func runtimeClasses() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "runtimeclasses", Singular: "runtimeclass", Kind: "RuntimeClass",
		New:     declare.New[nodev1.RuntimeClass],
		NewList: declare.New[nodev1.RuntimeClassList],
		Stored:  registry.Stored{Prefix: "runtimeclasses"},
		Default: declare.Do(func(c *nodev1.RuntimeClass) {
			if c.Overhead != nil {
				podspec.Round(c.Overhead.PodFixed)
			}
		}),
		CreateOnUpdate:     true,
		UpdateNeedsVersion: true,
		Columns: []registry.Column{
			columns.Name(),
			// Clients know this column without a description.
			columns.Text("Handler", "", func(c *nodev1.RuntimeClass) string { return c.Handler }),
			columns.Age(),
		},
	}
}
