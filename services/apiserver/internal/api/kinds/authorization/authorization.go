// Package authorization declares the kinds of the group authorization.k8s.io, v1, with one file for
// each kind. It has no state. Kinds returns new values for the catalog of built-in kinds.
package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/services/apiserver/internal/registry"
)

const (
	group   = authorizationv1.GroupName
	version = "v1"
)

// Kinds returns the kinds of the group, ordered by resource. All are reviews that are not stored.
func Kinds() []*registry.Kind {
	return []*registry.Kind{
		localSubjectAccessReviews(),
		selfSubjectAccessReviews(),
		selfSubjectRulesReviews(),
		subjectAccessReviews(),
	}
}
