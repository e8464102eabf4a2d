// Package authorization declares the kinds of the group authorization.k8s.io, v1, one file per
// kind. It keeps no state; Kinds makes fresh values for the catalog of built-in
// kinds.
package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/services/apiserver/internal/registry"
)

const (
	group   = authorizationv1.GroupName
	version = "v1"
)

// Kinds of the group, in the order of their resources. All are questions that
// are answered and not stored.
func Kinds() []*registry.Kind {
	return []*registry.Kind{
		localSubjectAccessReviews(),
		selfSubjectAccessReviews(),
		selfSubjectRulesReviews(),
		subjectAccessReviews(),
	}
}
