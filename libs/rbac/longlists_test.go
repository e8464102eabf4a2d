package rbac_test

import (
	"errors"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authorizer"
	"binnacle/libs/rbac"
)

// names returns n names in an order other than that of the alphabet.
func names(count int) []string {
	out := make([]string, count)
	for i := range out {
		out[i] = fmt.Sprint("n", count-1-i)
	}
	return out
}

// TestLongListsOfRulesMatch checks that sorted long lists match the same values as short ones.
func TestLongListsOfRulesMatch(t *testing.T) {
	long := rule("", "pods", "get", names(100)...)
	stars := rbacv1.PolicyRule{APIGroups: append(names(50), "*"), Resources: []string{"secrets"}, Verbs: append(names(50), "*")}
	engine := newEngine(role("a", "r", long, stars), binding("a", "b", ref("Role", "r"), user("alice")))
	for text, want := range map[string]authorizer.Decision{
		"get :pods a/n0": authorizer.Allow, "get :pods a/n50": authorizer.Allow, "get :pods a/n99": authorizer.Allow,
		"get :pods a/n100": authorizer.NoOpinion, "get :pods a/n": authorizer.NoOpinion, "get :pods a/*": authorizer.NoOpinion,
		"list apps:secrets a/x": authorizer.Allow,
	} {
		if d, reason := engine.Snapshot().Authorize(attributesOf(&authorizer.User{Name: "alice"}, text)); d != want {
			t.Errorf("%s: got %v %s, want %v", text, d, reason, want)
		}
	}
	rules, err := engine.Snapshot().RulesOf(ref("Role", "r"), "a")
	if err != nil || rules[0].ResourceNames[0] != "n99" {
		t.Errorf("got first resource name %v, %v, want that of the role, n99", rules[0].ResourceNames[0], err)
	}
}

// TestHeldRulesThatAreComparedAreLimited checks that a user with very many names in its roles
// cannot make one comparison arbitrarily expensive, and that rules that are not compared count as
// not held.
func TestHeldRulesThatAreComparedAreLimited(t *testing.T) {
	objs := []metav1.Object{}
	for i := range 4 {
		name := fmt.Sprint("r", i)
		objs = append(objs, role("a", name, rule("", name, "get", names(400_000)...)),
			binding("a", name, ref("Role", name), user("alice")))
	}
	alice := &authorizer.User{Name: "alice"}
	snapshot := newEngine(objs...).Snapshot()
	if values := snapshot.EscalationValues(alice, "a", nil); values < 1<<20 || values > 2<<20 {
		t.Errorf("got %d values to compare, want %d to %d", values, 1<<20, 2<<20)
	}
	if err := snapshot.CheckEscalation(alice, "a", []rbacv1.PolicyRule{rule("", "r0", "get", "n1")}); err != nil {
		t.Errorf("rules within the limit: got error %v, want none", err)
	}
	var rejected *rbac.EscalationError
	if err := snapshot.CheckEscalation(alice, "a", []rbacv1.PolicyRule{rule("", "r3", "get", "n1")}); !errors.As(err, &rejected) ||
		!rejected.Truncated {
		t.Errorf("rules beyond the limit: got error %v, want one that says that there are more", err)
	}
}
