package main

import (
	"net/http"
	"strings"

	"binnacle/e2e/conformance/comparison"
)

// cleanup returns the requests that remove the objects of a scenario that affect other scenarios.
func cleanup(c *comparison.Scenario) []comparison.Step {
	out := []comparison.Step{{Method: http.MethodDelete, Path: "/api/v1/namespaces/{ns}"}}
	for _, s := range c.Steps {
		if s.Method == http.MethodPost && strings.HasPrefix(s.Path, definitions) {
			if name, ok := comparison.Lookup(s.Object, "metadata.name").(string); ok && !strings.HasSuffix(name, customGroup) {
				out = append(out, comparison.Step{Method: http.MethodDelete, Path: definitions + "/" + name})
			}
		}
	}
	if c.Shared {
		for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "validatingadmissionpolicybindings", "validatingadmissionpolicies"} {
			out = append(out, comparison.Step{Method: http.MethodDelete, Path: "/apis/admissionregistration.k8s.io/v1/" + resource})
		}
	}
	return out
}

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
