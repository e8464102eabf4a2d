package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

// tokenReviews declares the cluster-scoped kind TokenReview.
func tokenReviews() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:    group,
			Version:  version,
			Resource: "tokenreviews",
			Singular: "tokenreview",
			Kind:     "TokenReview",
		},
		Virtual: true,
		Verbs:   []string{"create"},
		New:     declare.New[authenticationv1.TokenReview],
	}
}
