package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

// subjectAccessReviews declares the cluster-scoped kind SubjectAccessReview.
func subjectAccessReviews() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:    group,
			Version:  version,
			Resource: "subjectaccessreviews",
			Singular: "subjectaccessreview",
			Kind:     "SubjectAccessReview",
		},
		Virtual: true,
		Verbs:   []string{"create"},
		New:     declare.New[authorizationv1.SubjectAccessReview],
	}
}
