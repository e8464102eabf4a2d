// Package nodegroup declares the kinds of the group node.k8s.io, v1, with one file for each kind.
// It has no state. Kinds returns new values for the catalog of built-in kinds.
package nodegroup

import (
	nodev1 "k8s.io/api/node/v1"

	"binnacle/services/apiserver/internal/registry"
)

const (
	group   = nodev1.GroupName
	version = "v1"
)

// Kinds returns the kinds of the group.
func Kinds() []*registry.Kind { return []*registry.Kind{runtimeClasses()} }
