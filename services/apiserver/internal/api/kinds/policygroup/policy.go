// Package policygroup declares the kinds of the policy group, v1. It has no state. Kinds returns new
// values for the catalog of built-in kinds.
package policygroup

import "binnacle/services/apiserver/internal/registry"

const (
	group   = "policy"
	version = "v1"
)

// Kinds returns the kinds of the group.
func Kinds() []*registry.Kind { return []*registry.Kind{podDisruptionBudgets()} }
