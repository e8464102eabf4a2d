// Package authentication declares the kinds of the group authentication.k8s.io, v1, with one file
// for each kind. It has no state. Kinds returns new values for the catalog of built-in kinds.
package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"

	"binnacle/services/apiserver/internal/registry"
)

const (
	group   = authenticationv1.GroupName
	version = "v1"
)

// Kinds returns the kinds of the group, ordered by resource. All are reviews that are not stored.
// v1beta1 was removed in 1.33: it is served for older emulated versions.
func Kinds() []*registry.Kind {
	return []*registry.Kind{selfSubjectReviews(), tokenReviews(), betaSelfSubjectReviews()}
}
