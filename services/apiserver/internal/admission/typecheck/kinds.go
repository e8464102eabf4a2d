package typecheck

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxRuleKinds is the maximum number of kinds that one rule contributes. If a rule reaches it,
	// the later rules of the policy are skipped, as in Kubernetes.
	maxRuleKinds = 10
	// maxPolicyKinds is the number of kinds of a policy after which its later rules are skipped.
	// Kubernetes has no such limit. It is necessary because expressions are checked for each kind.
	maxPolicyKinds = 100
	// maxLookups bounds the lookups of kinds, because a rule covers all combinations of its groups,
	// versions and resources.
	maxLookups = 10_000
)

// wildcard stands for every group, version or resource in a rule.
const wildcard = "*"

// kindsOf returns the kinds for which a policy's expressions are checked, sorted by group, version
// and kind. These are the kinds of the resources that the policy's rules name. Wildcards and
// subresources are skipped. kinds is Schemas.Kinds.
func kindsOf(
	constraints *admissionregistrationv1.MatchResources,
	kinds func(group, version, resource string) []schema.GroupVersionKind,
) []schema.GroupVersionKind {
	if constraints == nil {
		return nil
	}
	var found []schema.GroupVersionKind
	lookups := 0
	for i := range constraints.ResourceRules {
		more, full := kindsOfRule(&constraints.ResourceRules[i].Rule, &lookups, kinds)
		found = append(found, more...)
		if full || len(found) >= maxPolicyKinds {
			break
		}
	}
	slices.SortFunc(found, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
	return slices.Compact(found)
}

// kindsOfRule returns the kinds that a rule names. It returns none if a group or version contains a
// wildcard. It adds the number of its lookups to *lookups. full reports that a limit was reached.
func kindsOfRule(
	rule *admissionregistrationv1.Rule,
	lookups *int,
	kinds func(group, version, resource string) []schema.GroupVersionKind,
) (found []schema.GroupVersionKind, full bool) {
	if hasWildcard(rule.APIGroups) || hasWildcard(rule.APIVersions) {
		return nil, false
	}
	resources := slices.DeleteFunc(
		slices.Sorted(slices.Values(rule.Resources)),
		func(name string) bool { return strings.ContainsAny(name, wildcard+"/") },
	)
	for _, group := range slices.Sorted(slices.Values(rule.APIGroups)) {
		for _, version := range slices.Sorted(slices.Values(rule.APIVersions)) {
			for _, resource := range resources {
				*lookups++
				if *lookups > maxLookups {
					return found, true
				}
				for _, kind := range kinds(group, version, resource) {
					found = append(found, kind)
					if len(found) == maxRuleKinds {
						return found, true
					}
				}
			}
		}
	}
	return found, false
}

func hasWildcard(list []string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, wildcard) })
}

// paramKind returns the kind of a policy's parameters. It is empty if the policy has none or the
// apiVersion is invalid.
func paramKind(k *admissionregistrationv1.ParamKind) schema.GroupVersionKind {
	if k == nil {
		return schema.GroupVersionKind{}
	}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return schema.GroupVersionKind{}
	}
	return gv.WithKind(k.Kind)
}

// mayUse reports whether the result of checking a policy may depend on the schema of a resource,
// because the resource may be the policy's parameter kind or match one of its rules. It may return
// true without need, which only causes another check.
func mayUse(policy *admissionregistrationv1.ValidatingAdmissionPolicySpec, resource schema.GroupResource) bool {
	if paramKind(policy.ParamKind).Group == resource.Group {
		return true
	}
	if policy.MatchConstraints == nil {
		return false
	}
	return slices.ContainsFunc(policy.MatchConstraints.ResourceRules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		// The core group stands for every group (see Schemas.Kinds).
		return slices.Contains(rule.APIGroups, resource.Group) ||
			slices.Contains(rule.APIGroups, "") && slices.Contains(rule.Resources, resource.Resource)
	})
}
