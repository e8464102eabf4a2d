package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"binnacle/libs/authorizer"
)

// wildcard stands for all values in a list of a rule.
const wildcard = "*"

// role is a compiled role. Its rules are indexed by their resources, so a request evaluates few of
// them.
type role struct {
	rules      []rbacv1.PolicyRule
	ruleSets   []ruleSets
	byResource map[string][]int32 // into rules: "pods", "pods/log", "*/scale", "*"
	paths      []int32            // rules with nonResourceURLs

	// Set for cluster roles only.
	labels      map[string]string
	aggregation *rbacv1.AggregationRule
}

// ruleSets holds the lists of a rule that a request is compared with.
type ruleSets struct{ verbs, groups, names valueSet }

// valueSet is a list of values. A long list is sorted, because a rule may have 100,000 names.
type valueSet struct {
	values      []string
	sorted      bool
	hasWildcard bool
}

// maxUnsorted is the length up to which a list is searched in its own order.
const maxUnsorted = 32

func newValueSet(values []string) valueSet {
	s := valueSet{values: values, hasWildcard: slices.Contains(values, wildcard)}
	if len(values) > maxUnsorted {
		s.values, s.sorted = slices.Sorted(slices.Values(values)), true
	}
	return s
}

func (s *valueSet) contains(value string) bool {
	if s.sorted {
		_, found := slices.BinarySearch(s.values, value)
		return found
	}
	return slices.Contains(s.values, value)
}

// matches reports whether the set contains a value, or a star.
func (s *valueSet) matches(value string) bool { return s.hasWildcard || s.contains(value) }

// compileRole indexes the rules of a role.
func compileRole(rules []rbacv1.PolicyRule) *role {
	r := &role{rules: rules, ruleSets: make([]ruleSets, len(rules)), byResource: map[string][]int32{}}
	for i := range rules {
		r.ruleSets[i] = ruleSets{newValueSet(rules[i].Verbs), newValueSet(rules[i].APIGroups),
			newValueSet(rules[i].ResourceNames)}
		n := int32(i)
		for _, res := range rules[i].Resources {
			if indexes := r.byResource[res]; len(indexes) == 0 || indexes[len(indexes)-1] != n {
				r.byResource[res] = append(indexes, n)
			}
		}
		if len(rules[i].NonResourceURLs) > 0 {
			r.paths = append(r.paths, n)
		}
	}
	return r
}

// requestQuery is a request in the form used to evaluate rules.
type requestQuery struct {
	*authorizer.Attributes
	resource    string // includes the subresource
	anyResource string // "*/subresource", or "" for a request without a subresource
	evaluated   int    // number of rules evaluated so far
}

func newQuery(a *authorizer.Attributes) requestQuery {
	q := requestQuery{Attributes: a, resource: a.ResourceName}
	if a.Subresource != "" {
		q.resource += "/" + a.Subresource
		q.anyResource = "*/" + a.Subresource
	}
	return q
}

func (r *role) allows(q *requestQuery) bool {
	if !q.Resource {
		q.evaluated += len(r.paths)
		for _, i := range r.paths {
			if r.ruleSets[i].verbs.matches(q.Verb) && matchesPath(r.rules[i].NonResourceURLs, q.Path) {
				return true
			}
		}
		return false
	}
	return r.anyAllows(r.byResource[q.resource], q) ||
		q.anyResource != "" && r.anyAllows(r.byResource[q.anyResource], q) ||
		r.anyAllows(r.byResource[wildcard], q)
}

func (r *role) anyAllows(rules []int32, q *requestQuery) bool {
	q.evaluated += len(rules)
	for _, i := range rules {
		rule := &r.ruleSets[i]
		if rule.verbs.matches(q.Verb) && rule.groups.matches(q.Group) && (len(rule.names.values) == 0 ||
			rule.names.contains(q.Name)) {
			return true
		}
	}
	return false
}

// matchesPath reports whether a path equals a pattern, or starts with a pattern that ends with a
// star.
func matchesPath(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return p == wildcard || p == path || strings.HasSuffix(p, wildcard) && strings.HasPrefix(path, strings.TrimRight(p, wildcard))
	})
}

// RuleSet is a fixed set of rules, for permissions that are not stored as objects.
type RuleSet struct{ role *role }

// NewRuleSet compiles rules, which must not change afterwards.
func NewRuleSet(rules []rbacv1.PolicyRule) *RuleSet { return &RuleSet{role: compileRole(rules)} }

// Allows reports whether any of the rules allows a request.
func (s *RuleSet) Allows(a *authorizer.Attributes) bool {
	q := newQuery(a)
	return s.role.allows(&q)
}

// Rules returns the rules of the set. They must not be changed.
func (s *RuleSet) Rules() []rbacv1.PolicyRule { return s.role.rules }
