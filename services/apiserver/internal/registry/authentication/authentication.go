// Package authentication declares the kinds of the group authentication.k8s.io, v1, one file per
// kind. It keeps no state; Kinds makes fresh values for the catalog of built-in
// kinds.
package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"

	"binnacle/services/apiserver/internal/registry"
)

const (
	group   = authenticationv1.GroupName
	version = "v1"
)

// Kinds of the group, in the order of their resources. All are questions that
// are answered and not stored. v1beta1 was removed in 1.33: it is served for older
// emulated versions.
func Kinds() []*registry.Kind {
	return []*registry.Kind{selfSubjectReviews(), tokenReviews(), betaSelfSubjectReviews()}
}
