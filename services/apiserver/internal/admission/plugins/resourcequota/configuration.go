package resourcequota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission/configuration"
	"binnacle/services/apiserver/internal/status"
)

// Configuration lists the resources that may be consumed only within a quota.
type Configuration struct {
	APIVersion       string            `json:"apiVersion"`
	Kind             string            `json:"kind"`
	LimitedResources []LimitedResource `json:"limitedResources"`
}

// LimitedResource is a resource that may be consumed only within a quota. This applies to amounts
// whose names contain one of MatchContains, and to objects in one of MatchScopes.
type LimitedResource struct {
	APIGroup      string                                     `json:"apiGroup"`
	Resource      string                                     `json:"resource"`
	MatchContains []string                                   `json:"matchContains"`
	MatchScopes   []corev1.ScopedResourceSelectorRequirement `json:"matchScopes"`
}

// Load decodes a ResourceQuotaConfiguration. A nil configuration limits nothing.
func Load(data []byte) (*Configuration, error) {
	var config Configuration
	if data == nil {
		return &config, nil
	}
	if err := configuration.Decode(data, &config,
		schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: "ResourceQuotaConfiguration"},
		schema.GroupVersionKind{Group: "resourcequota.admission.k8s.io", Version: "v1beta1", Kind: "Configuration"},
		schema.GroupVersionKind{Group: "resourcequota.admission.k8s.io", Version: "v1alpha1", Kind: "Configuration"},
	); err != nil {
		return nil, err
	}
	var errs field.ErrorList
	for i, l := range config.LimitedResources {
		if l.Resource == "" {
			errs = append(errs, field.Required(field.NewPath("limitedResources").Index(i).Child("resource"), ""))
		}
	}
	if len(errs) > 0 {
		return nil, status.Aggregated(errs)
	}
	return &config, nil
}

// limitedNames returns the names of the positive amounts in used that a resource may consume only
// within a quota.
func (c *Configuration) limitedNames(r schema.GroupResource, used amounts) names {
	var found names
	for _, limitedResource := range c.LimitedResources {
		if limitedResource.APIGroup != r.Group || limitedResource.Resource != r.Resource {
			continue
		}
		for name, q := range used {
			contains := func(part string) bool { return strings.Contains(string(name), part) }
			if q.Sign() > 0 && slices.ContainsFunc(limitedResource.MatchContains, contains) && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	return found
}

// limitedScopes returns the scopes in which objects need a quota.
func (c *Configuration) limitedScopes() (all []requirement) {
	for _, l := range c.LimitedResources {
		all = append(all, l.MatchScopes...)
	}
	return all
}
