package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/libs/semantic"
)

// Aggregate returns the rules of an aggregated cluster role: those of the cluster roles that a
// selector matches, in the order of their names, without duplicates. A controller manager computes
// the same, so both may write.
func (s *Snapshot) Aggregate(name string, a *rbacv1.AggregationRule) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	for i := range a.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&a.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		s.eachClusterRole(func(other string, r *role) {
			if other == name || !selector.Matches(labels.Set(r.labels)) {
				return
			}
			for _, rule := range r.rules {
				if !containsRule(rules, &rule) {
					rules = append(rules, rule)
				}
			}
		})
	}
	return rules, nil
}

func containsRule(rules []rbacv1.PolicyRule, rule *rbacv1.PolicyRule) bool {
	for i := range rules {
		if semantic.Equal(&rules[i], rule) {
			return true
		}
	}
	return false
}

// eachClusterRole calls each for every cluster role, in the order of their names.
func (s *Snapshot) eachClusterRole(each func(name string, r *role)) {
	const prefix = "/" // no namespace
	s.image.roles.Ascend(prefix, func(key string, r *role) bool {
		name, ok := strings.CutPrefix(key, prefix)
		if ok {
			each(name, r)
		}
		return ok
	})
}

// Stale returns the rules that aggregated cluster roles should have but do not, by name. It skips
// roles with an invalid selector.
func (s *Snapshot) Stale() map[string][]rbacv1.PolicyRule {
	var stale map[string][]rbacv1.PolicyRule
	s.eachClusterRole(func(name string, r *role) {
		if r.aggregation == nil {
			return
		}
		rules, err := s.Aggregate(name, r.aggregation)
		if err != nil || semantic.Equal(rules, r.rules) {
			return
		}
		if stale == nil {
			stale = map[string][]rbacv1.PolicyRule{}
		}
		stale[name] = rules
	})
	return stale
}
