// Package batch declares the kinds of the batch group, v1, one file per kind.
// It keeps no state; Kinds makes fresh values for the catalog of built-in
// kinds.
package batch

import "binnacle/services/apiserver/internal/registry"

const (
	group   = "batch"
	version = "v1"
)

// Kinds of the group, in the order of their resources.
func Kinds() []*registry.Kind { return []*registry.Kind{cronJobs(), jobs()} }

const (
	containersDesc = "Names of each container in the template."
	imagesDesc     = "Images referenced by each container in the template."
)
