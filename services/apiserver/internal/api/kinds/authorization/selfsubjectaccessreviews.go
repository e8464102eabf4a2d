package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

// selfSubjectAccessReviews declares the cluster-scoped kind SelfSubjectAccessReview.
func selfSubjectAccessReviews() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:    group,
			Version:  version,
			Resource: "selfsubjectaccessreviews",
			Singular: "selfsubjectaccessreview",
			Kind:     "SelfSubjectAccessReview",
		},
		Virtual: true,
		Verbs:   []string{"create"},
		New:     declare.New[authorizationv1.SelfSubjectAccessReview],
	}
}
