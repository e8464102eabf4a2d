package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

// localSubjectAccessReviews declares the namespaced kind LocalSubjectAccessReview.
func localSubjectAccessReviews() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:      group,
			Version:    version,
			Resource:   "localsubjectaccessreviews",
			Singular:   "localsubjectaccessreview",
			Kind:       "LocalSubjectAccessReview",
			Namespaced: true,
		},
		Virtual: true,
		Verbs:   []string{"create"},
		New:     declare.New[authorizationv1.LocalSubjectAccessReview],
	}
}
