// Package coordination declares the kinds of the group coordination.k8s.io, v1, with one file for
// each kind. It has no state. Kinds returns new values for the catalog of built-in kinds.
package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

const (
	group   = coordinationv1.GroupName
	version = "v1"
)

// Kinds returns the kinds of the group.
func Kinds(s registry.Settings) []*registry.Kind {
	return []*registry.Kind{
		leases(s.Enabled(features.CoordinatedLeaderElection)),
		leaseCandidates(),
		declare.AdditionalVersion("v1alpha2", leaseCandidates()),
	}
}
