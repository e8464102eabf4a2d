package rbac_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
)

// TestCoversComparesEachPartOfARule checks that each part of a rule is compared separately. The
// name of a case gives the part that is wanted and then the one that is owned: in "all groups of
// one", the wanted rule has all groups and the owned rule has one.
func TestCoversComparesEachPartOfARule(t *testing.T) {
	with := func(r rbacv1.PolicyRule, change func(*rbacv1.PolicyRule)) rbacv1.PolicyRule {
		change(&r)
		return r
	}
	for name, test := range map[string]struct {
		owned, wanted rbacv1.PolicyRule
		covered       bool
	}{
		"equal rules": {
			owned:   rule("apps", "deployments", "get"),
			wanted:  rule("apps", "deployments", "get"),
			covered: true,
		},
		"another group": {
			owned:   rule("apps", "deployments", "get"),
			wanted:  rule("", "deployments", "get"),
			covered: false,
		},
		"another resource": {
			owned:   rule("apps", "deployments", "get"),
			wanted:  rule("apps", "statefulsets", "get"),
			covered: false,
		},
		"another verb": {
			owned:   rule("apps", "deployments", "get"),
			wanted:  rule("apps", "deployments", "list"),
			covered: false,
		},
		"all groups": {
			owned:   rule("*", "deployments", "get"),
			wanted:  rule("apps", "deployments", "get"),
			covered: true,
		},
		"all groups of one": {
			owned:   rule("apps", "deployments", "get"),
			wanted:  rule("*", "deployments", "get"),
			covered: false,
		},
		"one name of all": {
			owned:   rule("apps", "deployments", "get"),
			wanted:  rule("apps", "deployments", "get", "a"),
			covered: true,
		},
		"all names of one": {
			owned:   rule("apps", "deployments", "get", "a"),
			wanted:  rule("apps", "deployments", "get"),
			covered: false,
		},
		"one of two names": {
			owned:   rule("apps", "deployments", "get", "a", "b"),
			wanted:  rule("apps", "deployments", "get", "b"),
			covered: true,
		},
		"another name": {
			owned:   rule("apps", "deployments", "get", "a"),
			wanted:  rule("apps", "deployments", "get", "b"),
			covered: false,
		},
		"a sub-resource of all": {
			owned:   rule("apps", "*/scale", "get"),
			wanted:  rule("apps", "deployments/scale", "get"),
			covered: true,
		},
		"another sub-resource of all": {
			owned:   rule("apps", "*/scale", "get"),
			wanted:  rule("apps", "deployments/status", "get"),
			covered: false,
		},
		"a sub-resource of its resource": {
			owned:   rule("apps", "deployments", "get"),
			wanted:  rule("apps", "deployments/scale", "get"),
			covered: false,
		},
		"a resource of no sub-resource": {
			owned:   rule("apps", "*/", "get"),
			wanted:  rule("apps", "deployments", "get"),
			covered: false,
		},
		"a resource of its sub-resource": {
			owned:   rule("apps", "*/scale", "get"),
			wanted:  rule("apps", "scale", "get"),
			covered: false,
		},
		"everything": {
			owned:   rule("*", "*", "*"),
			wanted:  rule("apps", "deployments/scale", "get", "a"),
			covered: true,
		},
		"a path":                 {owned: paths("/a", "get"), wanted: paths("/a", "get"), covered: true},
		"another path":           {owned: paths("/a", "get"), wanted: paths("/b", "get"), covered: false},
		"a path below":           {owned: paths("/a/*", "get"), wanted: paths("/a/b", "get"), covered: true},
		"a path of another verb": {owned: paths("/a", "get"), wanted: paths("/a", "put"), covered: false},
		"a path of resources":    {owned: rule("*", "*", "*"), wanted: paths("/a", "get"), covered: false},
		"resources of a path":    {owned: paths("*", "*"), wanted: rule("apps", "deployments", "get"), covered: false},
		"a resource of paths, mixed rule": {
			owned:   with(rule("apps", "deployments", "get"), func(r *rbacv1.PolicyRule) { r.NonResourceURLs = []string{"/a"} }),
			wanted:  paths("/a", "get"),
			covered: true,
		},
	} {
		covered, missing := rbac.Covers([]rbacv1.PolicyRule{test.owned}, []rbacv1.PolicyRule{test.wanted})
		if covered != test.covered || (len(missing) == 0) != covered {
			t.Errorf("%s: got covered: %t, missing %v, want covered: %t, and missing rules otherwise", name, covered,
				missing, test.covered)
		}
	}
}

// TestMissingNamesAreReported checks that the error lists each missing combination of verb and
// resource name.
func TestMissingNamesAreReported(t *testing.T) {
	err := newEngine().Snapshot().CheckEscalation(&authorizer.User{Name: "alice"}, "",
		[]rbacv1.PolicyRule{rule("", "pods", "get", "a", "b"), rule("", "pods", "list", "a"), rule("", "pods", "get")})
	want := []string{
		`{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get" "list"]}`,
		`{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}`,
		`{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`,
	}
	if err == nil || !strings.HasSuffix(err.Error(), "\n"+strings.Join(want, "\n")) {
		t.Errorf("CheckEscalation() = %v, want an error that ends with %q", err, want)
	}
}

// TestEmptyNamesMatchNoUser checks that subjects and rules with empty names allow nothing.
func TestEmptyNamesMatchNoUser(t *testing.T) {
	engine := newEngine(
		clusterRole("all", rule("*", "*", "*")), clusterRole("nameless", rule("", "", "get"), rule("", "*/", "get")),
		clusterBinding("b", ref("ClusterRole", "all"), user("")),
		clusterBinding("n", ref("ClusterRole", "nameless"), user("alice")),
	)
	for _, u := range []*authorizer.User{{}, {Groups: []string{"dev"}}, {Name: "alice"}} {
		if d, reason := engine.Snapshot().Authorize(attributesOf(u, "get :pods a/x")); d != authorizer.NoOpinion {
			t.Errorf("%v: %v %s, want %v", u, d, reason, authorizer.NoOpinion)
		}
	}
}

// TestReasonNamesSubject checks that the reason does not name a subject of another kind with the
// same name.
func TestReasonNamesSubject(t *testing.T) {
	engine := newEngine(
		clusterRole("all", rule("*", "*", "*")),
		clusterBinding("b", ref("ClusterRole", "all"), group("alice"), user("dev"), user("alice"), group("dev")),
	)
	for want, u := range map[string]*authorizer.User{
		`User "alice"`: {Name: "alice"},
		`Group "dev"`:  {Name: "bob", Groups: []string{"dev"}},
	} {
		if d, reason := engine.Snapshot().Authorize(attributesOf(u, "get :pods a/x")); d != authorizer.Allow ||
			!strings.HasSuffix(reason, " to "+want) {
			t.Errorf("%v: got %v, reason %s, want %v with a reason that ends in %q", u, d, reason, authorizer.Allow, " to "+want)
		}
	}
}

// TestRulesForListsRulesOfEachBinding checks the listed rules of a user, once for each binding, and
// the error for a missing role.
func TestRulesForListsRulesOfEachBinding(t *testing.T) {
	pods := rule("", "pods", "get", "a")
	deployments := rule("apps", "deployments", "list")
	path := paths("/a", "get")
	engine := newEngine(
		clusterRole("c", pods, path), role("a", "r", deployments),
		clusterBinding("cb", ref("ClusterRole", "c"), user("alice"), group("dev")),
		binding("a", "rb", ref("Role", "r"), group("dev")),
		binding("b", "rb", ref("Role", "none"), user("alice")),
	)
	alice := &authorizer.User{Name: "alice", Groups: []string{"dev"}}
	rules, err := engine.RulesFor(t.Context(), alice, "a")
	if err != nil || len(rules.Resource) != 2 || len(rules.NonResource) != 1 ||
		rules.Resource[0].ResourceNames[0] != "a" || rules.NonResource[0].NonResourceURLs[0] != "/a" {
		t.Errorf("got %+v, %v, want 2 rules of resources, the first of a, and one of the path /a", rules, err)
	}
	rules, err = engine.RulesFor(t.Context(), alice, "b")
	if err == nil || err.Error() != `role.rbac.authorization.k8s.io "none" not found` || len(rules.Resource) != 1 {
		t.Errorf("got rules %+v, %v, want one, and the error that the role none is not found", rules, err)
	}
	if got, err := engine.Snapshot().RulesOf(ref("Role", "r"), "a"); err != nil || !reflect.DeepEqual(got, []rbacv1.PolicyRule{deployments}) {
		t.Errorf("got rules %v, %v, want %v", got, err, deployments)
	}
	if got, err := engine.Snapshot().RulesOf(ref("Role", "r"), "b"); err == nil {
		t.Errorf("role of another namespace: %v, want an error", got)
	}
}

// TestListedRulesAreLimited checks that the list of rules is limited by number and bytes, and that a
// limited list is marked incomplete. The rules of a role are listed for each binding, as in
// Kubernetes.
func TestListedRulesAreLimited(t *testing.T) {
	u := &authorizer.User{Name: "alice"}
	engineWith := func(bindings, rules, bytes int) *rbac.Engine {
		objs := []metav1.Object{role("a", "r",
			slices.Repeat([]rbacv1.PolicyRule{rule("", "pods", strings.Repeat("x", bytes))}, rules)...)}
		for i := range bindings {
			objs = append(objs, binding("a", fmt.Sprint("b", i), ref("Role", "r"), user("alice")))
		}
		return newEngine(objs...)
	}
	for name, test := range map[string]struct {
		bindings, rules, bytes int
		atLeast, atMost        int // number of listed rules
		incomplete             bool
	}{
		"6 rules of 2 bindings":            {bindings: 2, rules: 3, bytes: 10, atLeast: 6, atMost: 6, incomplete: false},
		"10,000 rules of 2 bindings":       {bindings: 2, rules: 5000, bytes: 3, atLeast: 10_000, atMost: 10_000, incomplete: false},
		"100,000 rules of 100 bindings":    {bindings: 100, rules: 1000, bytes: 3, atLeast: 10_000, atMost: 10_000, incomplete: true},
		"50,000 long rules":                {bindings: 50, rules: 1000, bytes: 1000, atLeast: 1000, atMost: 1100, incomplete: true},
		"one rule over the limit of bytes": {bindings: 3, rules: 1, bytes: 2_000_000, atLeast: 0, atMost: 0, incomplete: true},
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := engineWith(test.bindings, test.rules, test.bytes).RulesFor(t.Context(), u, "a")
			if listed := len(rules.Resource); listed < test.atLeast || listed > test.atMost || rules.Incomplete != test.incomplete || (err != nil) != test.incomplete {
				t.Errorf("got %d rules, incomplete: %t, error %v, want %d to %d, incomplete with an error: %t", listed,
					rules.Incomplete, err, test.atLeast, test.atMost, test.incomplete)
			}
		})
	}
}

// TestManyRolesAreEvaluated checks that all roles are evaluated, even if several bindings name the
// same role.
func TestManyRolesAreEvaluated(t *testing.T) {
	for others := range 30 {
		objs := []metav1.Object{role("a", "last", rule("", "pods", "get"))}
		for i := range others {
			objs = append(objs, role("a", fmt.Sprint("r", i), rule("", "pods", "list")))
			for j := range 3 {
				objs = append(objs, binding("a", fmt.Sprintf("b%02d-%d", i, j), ref("Role", fmt.Sprint("r", i)), user("alice")))
			}
		}
		objs = append(objs, binding("a", "z", ref("Role", "last"), user("alice")))
		snapshot := newEngine(objs...).Snapshot()
		u := &authorizer.User{Name: "alice"}
		if d, reason := snapshot.Authorize(attributesOf(u, "get :pods a/x")); d != authorizer.Allow {
			t.Errorf("%d other roles: %v %s, want %v", others, d, reason, authorizer.Allow)
		}
		if d, reason := snapshot.Authorize(attributesOf(u, "delete :pods a/x")); d != authorizer.NoOpinion {
			t.Errorf("%d other roles: %v %s, want %v", others, d, reason, authorizer.NoOpinion)
		}
	}
}

// TestInvalidAggregationSelectorKeepsRules checks that a role with an invalid selector is
// unchanged.
func TestInvalidAggregationSelectorKeepsRules(t *testing.T) {
	broken := clusterRole("broken", rule("", "pods", "get"))
	broken.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key:      "a",
		Operator: "Near",
	}}}}}
	s := newEngine(broken).Snapshot()
	if rules, err := s.Aggregate("broken", broken.AggregationRule); err == nil {
		t.Errorf("rules = %v, want an error", rules)
	}
	if stale := s.Stale(); stale != nil {
		t.Errorf("Stale() = %v, want nil", stale)
	}
}

// TestBindingsAreIndependent checks that deleting a binding keeps the others of its subject, and
// that one binding suffices.
func TestBindingsAreIndependent(t *testing.T) {
	engine := newEngine(
		clusterRole("reader", rule("", "pods", "get")), clusterRole("writer", rule("", "pods", "create")),
		clusterBinding("r", ref("ClusterRole", "reader"), user("alice")),
		clusterBinding("r2", ref("ClusterRole", "reader"), group("dev")),
		clusterBinding("w", ref("ClusterRole", "writer"), user("alice")),
		binding("a", "r", ref("ClusterRole", "reader"), group("dev"), user("alice")),
	)
	alice := &authorizer.User{Name: "alice", Groups: []string{"dev"}}
	expectDecision := func(text string, want authorizer.Decision) {
		t.Helper()
		if d, reason := engine.Snapshot().Authorize(attributesOf(alice, text)); d != want {
			t.Errorf("%s: %v %s, want %v", text, d, reason, want)
		}
	}
	expectDecision("get :pods a/x", authorizer.Allow)
	for _, name := range []string{"r", "r2"} {
		engine.Update(func(tx *rbac.Tx) { tx.Delete(rbac.KindClusterRoleBinding, "", name) })
		expectDecision("create :pods a/x", authorizer.Allow)
		expectDecision("get :pods a/x", authorizer.Allow)
	}
	engine.Update(func(tx *rbac.Tx) { tx.Delete(rbac.KindRoleBinding, "a", "r") })
	expectDecision("get :pods a/x", authorizer.NoOpinion)
	expectDecision("create :pods a/x", authorizer.Allow)
}
