// Package batch declares the kinds of the batch group, v1, with one file for each kind. It has no
// state. Kinds returns new values for the catalog of built-in kinds.
package batch

import (
	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry"
)

const (
	group   = "batch"
	version = "v1"
)

// Kinds returns the kinds of the group, ordered by resource.
func Kinds(s registry.Settings) []*registry.Kind {
	rules := podspec.NewRules(s)
	return []*registry.Kind{cronJobs(rules), jobs(rules)}
}

const (
	containersDesc = "Names of each container in the template."
	imagesDesc     = "Images referenced by each container in the template."
)
