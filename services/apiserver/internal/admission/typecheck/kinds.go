package typecheck

import (
	"cmp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxKinds is the maximum number of kinds of one rule. If a rule reaches it, later rules are
	// skipped.
	maxKinds = 10
	// enoughKinds is the number of kinds of a policy after which later rules are skipped.
	// Kubernetes has no such limit. It is necessary because expressions are checked for each kind.
	enoughKinds = 100
	// maxLookups bounds the lookups of kinds, because a rule covers all combinations of its groups,
	// versions and resources.
	maxLookups = 10_000
)

const all = "*"

// kindsOf returns the kinds for which a policy's expressions are checked: those that its rules
// name, sorted by group, version and kind. Rules for every group or version, patterns and
// subresources are skipped.
func kindsOf(m *admissionv1.MatchResources, kinds func(group, version, resource string) []schema.GroupVersionKind) []schema.GroupVersionKind {
	if m == nil {
		return nil
	}
	var found []schema.GroupVersionKind
	lookups := 0
	for i := range m.ResourceRules {
		more, full := kindsOfRule(&m.ResourceRules[i].Rule, &lookups, kinds)
		found = append(found, more...)
		if full || len(found) >= enoughKinds {
			break
		}
	}
	slices.SortFunc(found, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
	return slices.Compact(found)
}

// kindsOfRule returns the kinds that a rule names, and none if it contains patterns. full reports
// that a limit was reached.
func kindsOfRule(r *admissionv1.Rule, lookups *int, kinds func(group, version, resource string) []schema.GroupVersionKind) (found []schema.GroupVersionKind, full bool) {
	if isPattern(r.APIGroups) || isPattern(r.APIVersions) {
		return nil, false
	}
	resources := slices.DeleteFunc(slices.Sorted(slices.Values(r.Resources)), func(name string) bool { return strings.ContainsAny(name, all+"/") })
	for _, group := range slices.Sorted(slices.Values(r.APIGroups)) {
		for _, version := range slices.Sorted(slices.Values(r.APIVersions)) {
			for _, resource := range resources {
				*lookups++
				if *lookups > maxLookups {
					return found, true
				}
				for _, kind := range kinds(group, version, resource) {
					found = append(found, kind)
					if len(found) == maxKinds {
						return found, true
					}
				}
			}
		}
	}
	return found, false
}

func isPattern(list []string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, all) })
}

// paramKind returns the kind of a policy's parameters, or an empty one.
func paramKind(k *admissionv1.ParamKind) schema.GroupVersionKind {
	if k == nil {
		return schema.GroupVersionKind{}
	}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return schema.GroupVersionKind{}
	}
	return gv.WithKind(k.Kind)
}

// mayUse reports whether the type check of a policy may use the types of a resource: those of its
// parameters, or those that its rules match.
func mayUse(s *admissionv1.ValidatingAdmissionPolicySpec, r schema.GroupResource) bool {
	if paramKind(s.ParamKind).Group == r.Group {
		return true
	}
	if s.MatchConstraints == nil {
		return false
	}
	return slices.ContainsFunc(s.MatchConstraints.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
		// The core group stands for every group (see Schemas.Kinds).
		return slices.Contains(rule.APIGroups, r.Group) || slices.Contains(rule.APIGroups, "") && slices.Contains(rule.Resources, r.Resource)
	})
}
