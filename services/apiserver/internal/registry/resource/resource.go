// Package resource declares the kinds of the group resource.k8s.io, v1beta1, one
// file per kind. The group is off by default. It keeps no state; Kinds makes
// fresh values for the catalog of built-in kinds.
package resource

import (
	resourcev1beta1 "k8s.io/api/resource/v1beta1"

	"binnacle/services/apiserver/internal/registry"
)

const (
	group   = resourcev1beta1.GroupName
	version = "v1beta1"
)

// Kinds of the group, in the order of their resources.
func Kinds() []*registry.Kind {
	return []*registry.Kind{
		deviceClasses(),
		resourceClaims(),
		resourceClaimTemplates(),
		resourceSlices(),
	}
}
