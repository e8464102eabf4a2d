package openapi

// knownDifferences returns the accepted differences. Each must occur, and no other may.
func knownDifferences() []knownDifference {
	return []knownDifference{
		{"changed", "", ".info.version", "Kubernetes' documents are recorded without a release"},
		{"changed", ".io.k8s.apiextensions-apiserver.", ".description", "the types and their descriptions are the project's own"},
		{"changed", ".io.k8s.kube-aggregator.", ".description", "the types and their descriptions are the project's own"},
		{"gone", ".admissionregistration.v1alpha1.MatchCondition.", ".description",
			"the Go type is an alias without descriptions"},
	}
}
