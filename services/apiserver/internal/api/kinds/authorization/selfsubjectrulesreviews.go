package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

// selfSubjectRulesReviews declares the cluster-scoped kind SelfSubjectRulesReview.
func selfSubjectRulesReviews() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group:    group,
			Version:  version,
			Resource: "selfsubjectrulesreviews",
			Singular: "selfsubjectrulesreview",
			Kind:     "SelfSubjectRulesReview",
		},
		Virtual: true,
		Verbs:   []string{"create"},
		New:     declare.New[authorizationv1.SelfSubjectRulesReview],
	}
}
