// Package batch declares the kinds of the batch group, v1, one file per kind.
// It keeps no state; Kinds makes fresh values for the catalog of built-in
// kinds.
package batch

import (
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/podspec"
)

const (
	group   = "batch"
	version = "v1"
)

// Kinds of the group, in the order of their resources.
func Kinds(s registry.Settings) []*registry.Kind {
	rules := podspec.NewRules(s)
	return []*registry.Kind{cronJobs(rules), jobs(rules)}
}

const (
	containersDesc = "Names of each container in the template."
	imagesDesc     = "Images referenced by each container in the template."
)
