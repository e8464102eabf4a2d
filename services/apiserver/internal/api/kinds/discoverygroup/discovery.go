// Package discoverygroup declares the kinds of the group discovery.k8s.io, v1, with one file for
// each kind. It has no state. Kinds returns new values for the catalog of built-in kinds.
package discoverygroup

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"binnacle/services/apiserver/internal/registry"
)

const (
	group   = discoveryv1.GroupName
	version = "v1"
)

// Kinds returns the kinds of the group.
func Kinds(s registry.Settings) []*registry.Kind { return []*registry.Kind{endpointSlices(s)} }
