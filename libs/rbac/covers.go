package rbac

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"binnacle/libs/authorizer"
)

// Covers reports whether a holder of the rules owner may do everything that desired allows. It also
// returns the missing rules, each for one verb of one resource or path. The time is proportional to
// the number of such parts of desired.
func Covers(owner, desired []rbacv1.PolicyRule) (bool, []rbacv1.PolicyRule) {
	c := findMissingParts(owner, desired, math.MaxInt, math.MaxInt, math.MaxInt)
	return len(c.missing) == 0, c.missing
}

// EscalationError reports that a user tries to grant permissions that it does not hold.
type EscalationError struct {
	User    *authorizer.User
	Missing []rbacv1.PolicyRule
	// Truncated means that more may be missing: the rules have too many parts to check all of them.
	Truncated bool
	// Unresolved holds the roles of the user that are missing.
	Unresolved []error
}

func (e *EscalationError) Error() string {
	lines := map[string]bool{}
	for _, r := range mergeVerbs(e.Missing) {
		lines[ruleText(&r)] = true
	}
	msg := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		e.User.Name, e.User.Groups, strings.Join(slices.Sorted(maps.Keys(lines)), "\n"))
	if e.Truncated {
		msg += "\n(the rules have more parts than are compared with what is held: write them in several, or with stars)"
	}
	if len(e.Unresolved) > 0 {
		msg += fmt.Sprintf("; resolution errors: %v", e.Unresolved)
	}
	return msg
}

// CheckEscalation returns *EscalationError if a user, by granting rules in a namespace (none: at
// cluster scope), would grant more than it holds.
func (s *Snapshot) CheckEscalation(user *authorizer.User, namespace string, rules []rbacv1.PolicyRule) error {
	held, unresolved := s.heldRules(user, namespace)
	c := findMissingParts(held, rules, maxMissing, maxCompared, maxHeldValues)
	if len(c.missing) == 0 && !c.truncated {
		return nil
	}
	return &EscalationError{User: user, Missing: c.missing, Truncated: c.truncated || c.remainingValues < 0, Unresolved: unresolved}
}

// EscalationValues returns the number of values that CheckEscalation compares. Its time is
// proportional to that number.
func (s *Snapshot) EscalationValues(u *authorizer.User, namespace string, rules []rbacv1.PolicyRule) (count int) {
	held, _ := s.heldRules(u, namespace)
	for i := range held {
		count += valuesOf(&held[i])
		if count > maxHeldValues {
			count = maxHeldValues
			break
		}
	}
	for i := range rules {
		count += valuesOf(&rules[i])
	}
	return count
}

// mergeVerbs merges the verbs of rules for the same resource.
func mergeVerbs(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	type key struct{ group, resource, name string }
	indexes := map[key]int{}
	var out []rbacv1.PolicyRule
	for _, policyRule := range rules {
		if len(policyRule.NonResourceURLs) > 0 || len(policyRule.APIGroups) != 1 || len(policyRule.Resources) != 1 || len(policyRule.ResourceNames) > 1 {
			out = append(out, policyRule)
			continue
		}
		k := key{group: policyRule.APIGroups[0], resource: policyRule.Resources[0]}
		if len(policyRule.ResourceNames) == 1 {
			k.name = policyRule.ResourceNames[0]
		}
		i, ok := indexes[k]
		if !ok {
			indexes[k] = len(out)
			policyRule.Verbs = slices.Clone(policyRule.Verbs)
			out = append(out, policyRule)
			continue
		}
		for _, v := range policyRule.Verbs {
			if !slices.Contains(out[i].Verbs, v) {
				out[i].Verbs = append(out[i].Verbs, v)
			}
		}
	}
	return out
}

// ruleText formats a rule in one line.
func ruleText(policyRule *rbacv1.PolicyRule) string {
	var parts []string
	for _, p := range []struct {
		name   string
		values []string
	}{
		{"APIGroups", policyRule.APIGroups}, {"Resources", policyRule.Resources}, {"NonResourceURLs", policyRule.NonResourceURLs},
		{"ResourceNames", policyRule.ResourceNames}, {"Verbs", policyRule.Verbs},
	} {
		if len(p.values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", p.name, p.values))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
