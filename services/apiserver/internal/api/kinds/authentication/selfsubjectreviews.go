package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

// selfSubjectReviews declares the cluster-scoped kind SelfSubjectReview.
func selfSubjectReviews() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:    group,
			Version:  version,
			Resource: "selfsubjectreviews",
			Singular: "selfsubjectreview",
			Kind:     "SelfSubjectReview",
		},
		Virtual: true,
		Verbs:   []string{"create"},
		New:     declare.New[authenticationv1.SelfSubjectReview],
	}
}

func betaSelfSubjectReviews() *registry.Kind {
	k := selfSubjectReviews()
	k.Version = "v1beta1"
	k.New = declare.New[authenticationv1beta1.SelfSubjectReview]
	return k
}
