package matcher

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
)

// wildcard matches every group, version, resource or subresource.
const wildcard = "*"

// rule is a compiled rule of Criteria.
type rule struct {
	operations       []admissionregistrationv1.OperationType
	groups, versions []string
	resources        []resourcePattern
	scope            admissionregistrationv1.ScopeType
	names            []string
}

// resourcePattern is an element of a rule's resources: "pods/status" has the resource pods and the
// subresource status. subresource is empty for a resource itself. Both may be "*".
type resourcePattern struct{ resource, subresource string }

func compileRules(rules []admissionregistrationv1.NamedRuleWithOperations) []rule {
	out := make([]rule, len(rules))
	for i := range rules {
		r := &rules[i]
		out[i] = rule{
			operations: r.Operations,
			groups:     r.APIGroups,
			versions:   r.APIVersions,
			scope:      admissionregistrationv1.AllScopes,
			names:      r.ResourceNames,
		}
		if r.Scope != nil {
			out[i].scope = *r.Scope
		}
		for _, resource := range r.Resources {
			name, sub, _ := strings.Cut(resource, "/")
			out[i].resources = append(out[i].resources, resourcePattern{resource: name, subresource: sub})
		}
	}
	return out
}

// matches reports whether a rule matches a request, apart from its name. kind is the version of the
// requested resource to match, which may differ from key.kind.
func (r *rule) matches(key requestKey, kind *registry.Kind) bool {
	return r.matchesOperation(key.operation) && containsOrWildcard(r.groups, kind.Group) && containsOrWildcard(r.versions, kind.Version) &&
		r.matchesResource(kind.Resource, key.subresource) && r.matchesScope(key.namespaced)
}

func containsOrWildcard(values []string, value string) bool {
	return slices.Contains(values, wildcard) || slices.Contains(values, value)
}

func (r *rule) matchesOperation(op admission.Operation) bool {
	return slices.Contains(r.operations, admissionregistrationv1.OperationAll) || slices.Contains(r.operations, admissionregistrationv1.OperationType(op))
}

func (r *rule) matchesResource(resource, subresource string) bool {
	for _, pattern := range r.resources {
		if (pattern.resource == wildcard || pattern.resource == resource) && (pattern.subresource == wildcard || pattern.subresource == subresource) {
			return true
		}
	}
	return false
}

// matchesScope reports whether the scope of the rule includes requests with or without a namespace.
func (r *rule) matchesScope(namespaced bool) bool {
	switch r.scope {
	case admissionregistrationv1.NamespacedScope:
		return namespaced
	case admissionregistrationv1.ClusterScope:
		return !namespaced
	}
	return true
}

// matchesName reports whether a rule matches a name.
func (r *rule) matchesName(name string) bool {
	return len(r.names) == 0 || slices.Contains(r.names, name)
}
