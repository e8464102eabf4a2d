package rbac_test

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
)

// TestMissingRulesAgreeWithNaiveComparison compares the result with that of checking each part
// separately.
func TestMissingRulesAgreeWithNaiveComparison(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		owner := rapid.SliceOfN(genRule(), 0, 150).Draw(t, "owner")
		wanted := rapid.SliceOfN(genRule(), 1, 4).Draw(t, "wanted")
		var want []rbacv1.PolicyRule
		for _, w := range wanted {
			for _, part := range parts(w) {
				if !slices.ContainsFunc(owner, func(o rbacv1.PolicyRule) bool { return holdsPart(o, part) }) {
					want = append(want, part)
				}
			}
		}
		if _, missing := rbac.Covers(owner, wanted); !reflect.DeepEqual(missing, want) {
			t.Fatalf("missing %v, want %v", missing, want)
		}
	})
}

// parts returns a rule for each combination of a group, resource, name and verb, or of a path and
// verb.
func parts(policyRule rbacv1.PolicyRule) (out []rbacv1.PolicyRule) {
	for _, group := range policyRule.APIGroups {
		for _, resource := range policyRule.Resources {
			for _, verb := range policyRule.Verbs {
				part := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
				if len(policyRule.ResourceNames) == 0 {
					out = append(out, part)
				}
				for _, name := range policyRule.ResourceNames {
					part.ResourceNames = []string{name}
					out = append(out, part)
				}
			}
		}
	}
	for _, path := range policyRule.NonResourceURLs {
		for _, verb := range policyRule.Verbs {
			out = append(out, rbacv1.PolicyRule{NonResourceURLs: []string{path}, Verbs: []string{verb}})
		}
	}
	return out
}

func holdsPart(policyRule, part rbacv1.PolicyRule) bool {
	contains := func(owned []string, v string) bool { return slices.Contains(owned, "*") || slices.Contains(owned, v) }
	if !contains(policyRule.Verbs, part.Verbs[0]) {
		return false
	}
	if len(part.NonResourceURLs) > 0 {
		return slices.ContainsFunc(policyRule.NonResourceURLs, func(p string) bool {
			return p == part.NonResourceURLs[0] ||
				strings.HasSuffix(p, "*") && strings.HasPrefix(part.NonResourceURLs[0], strings.TrimRight(p, "*"))
		})
	}
	resource := contains(policyRule.Resources, part.Resources[0])
	if _, sub, ok := strings.Cut(part.Resources[0], "/"); ok && slices.Contains(policyRule.Resources, "*/"+sub) {
		resource = true
	}
	names := len(policyRule.ResourceNames) == 0 || len(part.ResourceNames) > 0 && slices.Contains(policyRule.ResourceNames, part.ResourceNames[0])
	return resource && names && contains(policyRule.APIGroups, part.APIGroups[0])
}

// TestRulesWithManyPartsAreRejected uses a short rule with a hundred million parts. A user that
// does not hold all of it by one rule is rejected.
func TestRulesWithManyPartsAreRejected(t *testing.T) {
	values := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint("v", i))
		}
		return out
	}
	large := rbacv1.PolicyRule{APIGroups: values(100), Resources: values(100), Verbs: values(100), ResourceNames: values(100)}
	half, otherHalf := large, large
	half.Verbs, otherHalf.Verbs = large.Verbs[:50], large.Verbs[50:]
	many := make([]rbacv1.PolicyRule, 400)
	for i := range many {
		many[i] = rule("", "pods", fmt.Sprint("v", i))
	}
	for name, test := range map[string]struct {
		held     []rbacv1.PolicyRule
		rejected bool
		missing  int
	}{
		"no rules":          {held: nil, rejected: true, missing: 1000},
		"other rules":       {held: many, rejected: true, missing: 1000},
		"all permissions":   {held: append(slices.Clone(many), rule("*", "*", "*")), rejected: false, missing: 0},
		"the same rules":    {held: append(slices.Clone(many), large), rejected: false, missing: 0},
		"both halves":       {held: []rbacv1.PolicyRule{half, otherHalf}, rejected: true, missing: 0},
		"half of the rules": {held: []rbacv1.PolicyRule{otherHalf}, rejected: true, missing: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			engine := newEngine(clusterRole("held", test.held...), clusterBinding("held", ref("ClusterRole", "held"), user("alice")))
			err := engine.Snapshot().CheckEscalation(&authorizer.User{Name: "alice"}, "", []rbacv1.PolicyRule{large})
			if (err != nil) != test.rejected {
				t.Fatalf("got error %v, want one: %t", err, test.rejected)
			}
			var rejected *rbac.EscalationError
			if errors.As(err, &rejected) && (!rejected.Truncated || len(rejected.Missing) != test.missing ||
				!strings.Contains(err.Error(), "more parts")) {
				t.Errorf("got %d missing rules, truncated: %t, want %d, true", len(rejected.Missing),
					rejected.Truncated, test.missing)
			}
		})
	}
}

// TestManyHeldRulesCostLittle checks that held rules that were not requested need no memory,
// however often a role is bound.
func TestManyHeldRulesCostLittle(t *testing.T) {
	rules := make([]rbacv1.PolicyRule, 20_000)
	for i := range rules {
		rules[i] = rule("", fmt.Sprint("r", i), fmt.Sprint("v", i), fmt.Sprint("n", i))
	}
	objects := []metav1.Object{clusterRole("held", rules...)}
	for i := range 20 {
		objects = append(objects, clusterBinding(fmt.Sprint("b", i), ref("ClusterRole", "held"), user("alice")))
	}
	snapshot := newEngine(objects...).Snapshot()
	for name, test := range map[string]struct {
		wanted rbacv1.PolicyRule
		held   bool
	}{
		"one of them":  {wanted: rule("", "r7", "v7", "n7"), held: true},
		"parts of two": {wanted: rule("", "r7", "v8", "n7"), held: false},
		"a path":       {wanted: paths("/a", "get"), held: false},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := snapshot.CheckEscalation(&authorizer.User{Name: "alice"}, "", []rbacv1.PolicyRule{test.wanted})
		runtime.ReadMemStats(&after)
		if elapsed := after.TotalAlloc - before.TotalAlloc; (err == nil) != test.held || elapsed > 32<<20 {
			t.Errorf("%s: got %d bytes allocated, error %v, want at most %d, held: %t", name, elapsed, err, 32<<20, test.held)
		}
	}
}
