package authzwebhook_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/security/authz/authzwebhook"
)

func newCompiler(t *testing.T) *authzwebhook.Compiler {
	t.Helper()
	c, err := authzwebhook.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOnlyMatchingRequestsCallWebhook calls the webhook only for requests that match the conditions.
func TestOnlyMatchingRequestsCallWebhook(t *testing.T) {
	pods := attributesFor("x")
	path := &authorizer.Attributes{User: &authorizer.User{Name: "bob"}, Verb: "get", Path: "/metrics"}
	selecting := attributesFor("")
	selecting.FieldSelector = fields.ParseSelectorOrDie("spec.nodeName=n").Requirements()
	labelled := attributesFor("")
	selector, err := labels.Parse("x in (b,a),y")
	if err != nil {
		t.Fatal(err)
	}
	labelled.LabelSelector, _ = selector.Requirements()
	const expectCalls, skips, fails = "asks", "skips", "fails"
	const broken = `request.resourceAttributes.namespace == "ns"` // fails for paths
	for _, test := range []struct {
		conditions string
		a          *authorizer.Attributes
		want       string
	}{
		{conditions: `request.user == "alice"`, a: pods, want: expectCalls},
		{conditions: `request.user == "alice"`, a: path, want: skips},
		{conditions: `has(request.resourceAttributes)`, a: pods, want: expectCalls},
		{conditions: `has(request.resourceAttributes)`, a: path, want: skips},
		{
			conditions: `has(request.nonResourceAttributes) && request.nonResourceAttributes.path.startsWith("/m")`,
			a:          path,
			want:       expectCalls,
		},
		{conditions: `"dev" in request.groups`, a: pods, want: expectCalls},
		{conditions: `request.groups.exists(g, g == "x")`, a: path, want: skips},
		{conditions: `request.extra["scope"][1] == "b" && request.uid == "u"`, a: pods, want: expectCalls},
		{conditions: `!has(request.extra)`, a: path, want: expectCalls},
		{
			conditions: `request.resourceAttributes.group == "" && request.resourceAttributes.version == "v1" && request.resourceAttributes.resource == "pods" && request.resourceAttributes.subresource == "" && request.resourceAttributes.name == "x" && request.resourceAttributes.verb == "get"`,
			a:          pods,
			want:       expectCalls,
		},
		{conditions: `has(request.resourceAttributes.fieldSelector)`, a: pods, want: skips},
		{
			conditions: `request.resourceAttributes.fieldSelector.requirements[0].values[0] == "n" && !has(request.resourceAttributes.labelSelector)`,
			a:          selecting,
			want:       expectCalls,
		},
		{conditions: `!has(request.resourceAttributes.fieldSelector.rawSelector)`, a: selecting, want: expectCalls},
		{
			conditions: `request.resourceAttributes.labelSelector.requirements.map(r, r.key + " " + r.operator) == ["x In", "y Exists"]`,
			a:          labelled,
			want:       expectCalls,
		},
		{conditions: `request.resourceAttributes.labelSelector.requirements[0].values == ["a", "b"]`, a: labelled, want: expectCalls},
		{conditions: `request.resourceAttributes.labelSelector.requirements[1].values.size() == 0`, a: labelled, want: expectCalls},
		{conditions: `request.groups.size() == 0`, a: path, want: expectCalls},
		{conditions: broken, a: path, want: fails},
		{conditions: broken + "\n" + `request.user == "alice"`, a: path, want: skips}, // a false condition decides
		{conditions: `request.user == "alice"` + "\n" + broken, a: path, want: skips},
		{conditions: broken + "\n" + `request.user == "bob"`, a: path, want: fails},
	} {
		conditions, err := newCompiler(t).Compile(strings.Split(test.conditions, "\n"))
		if err != nil {
			t.Errorf("%s: got error %v, want none", test.conditions, err)
			continue
		}
		for policy, decision := range map[string]authorizer.Decision{"no-opinion": authorizer.NoOpinion, "denied": authorizer.Deny} {
			f := newFixture(t, func(cfg *authzwebhook.Config) { cfg.Conditions, cfg.FailureDecision = conditions, decision })
			got := f.authorize(t, test.a)
			want := map[string]string{expectCalls: "no-opinion", skips: "no-opinion", fails: policy + " error"}[test.want]
			if calls := f.service.calls.Load() == 1; got != want || calls != (test.want == expectCalls) {
				t.Errorf("%s, failure policy %s: got %q, called %v, want %q", test.conditions, policy, got, calls, want)
			}
		}
	}
}

// TestInvalidConditionsAreRejected checks that invalid expressions are rejected by errors that quote them.
func TestInvalidConditionsAreRejected(t *testing.T) {
	for _, e := range []string{
		"", "1", "request.absent", "object.x", `request.user +`, `request.groups`, "request.resourceAttributes.field",
	} {
		if err := newCompiler(t).Check(e); err == nil {
			t.Errorf("%q: got no error, want one", e)
		}
		if _, err := newCompiler(t).Compile([]string{"true", e}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", e)) {
			t.Errorf("%q: got error %v, want one that quotes the expression", e, err)
		}
	}
}

// TestExpensiveConditionsEnd checks that a condition beyond the cost budget is an error.
func TestExpensiveConditionsEnd(t *testing.T) {
	// The cost of a match depends on the lengths of the expression and the text.
	expression := "(" + strings.Repeat("xyz|", 30) + "y)$"
	conditions, err := newCompiler(t).Compile([]string{`[1, 2, 3, 4, 5, 6, 7, 8].exists(i, request.user.matches("` +
		expression + `"))`})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(cfg *authzwebhook.Config) { cfg.Conditions = conditions })
	attrs := attributesFor("x")
	if got := f.authorize(t, attrs); got != "no-opinion" || f.service.calls.Load() != 0 {
		t.Errorf("short text: got %q, %d calls; want \"no-opinion\", 0", got, f.service.calls.Load())
	}
	attrs.User.Name = strings.Repeat("a", 100_000)
	if got := f.authorize(t, attrs); got != "no-opinion error" || f.service.calls.Load() != 0 {
		t.Errorf("long text: got %q, %d calls; want \"no-opinion error\", 0", got, f.service.calls.Load())
	}
}
