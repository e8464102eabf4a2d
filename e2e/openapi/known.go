package openapi

// knownDifferences are those between our documents and Kubernetes' own. Each is found
// somewhere, and nothing else is.
func knownDifferences() []known {
	return []known{
		{"changed", "", ".info.version", "theirs are written down without a release"},
		{"changed", ".io.k8s.apiextensions-apiserver.", ".description", "the types are our own, and so are their texts"},
		{"changed", ".io.k8s.kube-aggregator.", ".description", "the types are our own, and so are their texts"},
		{"gone", ".admissionregistration.v1alpha1.MatchCondition.", ".description", "the Go type is another one's by another name, and has no texts"},
	}
}
