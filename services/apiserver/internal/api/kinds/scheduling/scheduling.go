// Package scheduling declares the kinds of the group scheduling.k8s.io, v1, with one file for each
// kind. It has no state. Kinds returns new values for the catalog of built-in kinds.
package scheduling

import (
	schedulingv1 "k8s.io/api/scheduling/v1"

	"binnacle/services/apiserver/internal/registry"
)

const (
	group   = schedulingv1.GroupName
	version = "v1"
)

// Kinds returns the kinds of the group.
func Kinds() []*registry.Kind { return []*registry.Kind{priorityClasses()} }
