package authorizer_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/libs/authorizer"
)

// fixedAuthorizer has the same result for every request.
type fixedAuthorizer struct {
	decision authorizer.Decision
	reason   string
	err      error
}

func (s fixedAuthorizer) Authorize(context.Context, *authorizer.Attributes) (authorizer.Decision, string, error) {
	return s.decision, s.reason, s.err
}

func (s fixedAuthorizer) RulesFor(context.Context, *authorizer.User, string) (authorizer.Rules, error) {
	return authorizer.Rules{
		Resource:   []authorizationv1.ResourceRule{{Verbs: []string{s.reason}}},
		Incomplete: s.err != nil,
	}, s.err
}

// TestChainReturnsFirstDecision checks that the first member that allows or denies decides. If no
// member does, the chain returns all reasons and errors.
func TestChainReturnsFirstDecision(t *testing.T) {
	noOpinion := fixedAuthorizer{reason: "a"}
	allows := fixedAuthorizer{decision: authorizer.Allow, reason: "yes"}
	denies := fixedAuthorizer{decision: authorizer.Deny, reason: "never"}
	broken := fixedAuthorizer{reason: "b", err: errors.New("x")}
	for _, test := range []struct {
		chain    authorizer.Chain
		decision authorizer.Decision
		reason   string
		err      string
	}{
		{chain: nil, decision: authorizer.NoOpinion, reason: "", err: ""},
		{chain: authorizer.Chain{noOpinion, allows, denies}, decision: authorizer.Allow, reason: "yes", err: ""},
		{chain: authorizer.Chain{noOpinion, denies, allows}, decision: authorizer.Deny, reason: "never", err: ""},
		{
			chain:    authorizer.Chain{broken, allows},
			decision: authorizer.Allow,
			reason:   "yes",
			err:      "",
		}, // a later member may allow after an error
		{chain: authorizer.Chain{noOpinion, broken, fixedAuthorizer{}}, decision: authorizer.NoOpinion, reason: "a\nb", err: "x"},
		{
			chain:    authorizer.Chain{broken, fixedAuthorizer{err: errors.New("y")}},
			decision: authorizer.NoOpinion,
			reason:   "b",
			err:      "[x, y]",
		},
	} {
		decision, reason, err := test.chain.Authorize(t.Context(), &authorizer.Attributes{})
		text := ""
		if err != nil {
			text = err.Error()
		}
		if decision != test.decision || reason != test.reason || text != test.err {
			t.Errorf("%v: got %v, reason %q, error %q, want %v, %q, %q", test.chain, decision, reason, text, test.decision, test.reason, test.err)
		}
	}
}

// TestChainJoinsRulesOfMembers checks that the rules of all members are returned, with the errors.
func TestChainJoinsRulesOfMembers(t *testing.T) {
	noOpinion := fixedAuthorizer{reason: "a"}
	broken := fixedAuthorizer{reason: "b", err: errors.New("x")}
	rules, err := authorizer.Chain{noOpinion, authorizer.SystemMasters{}, broken, authorizer.AlwaysDeny{},
		authorizer.AlwaysAllow{}}.RulesFor(t.Context(), &authorizer.User{}, "a")
	if len(rules.Resource) != 3 || len(rules.NonResource) != 1 || !rules.Incomplete || err == nil || err.Error() != "x" {
		t.Errorf("got rules %+v, %v, want 3 of resources, 1 of other paths, incomplete, and the error x", rules, err)
	}
}

// TestReviewSpecSurvivesConversionToAttributes converts the spec of a review to attributes and back.
// Raw selectors become requirements. Requirements that cannot be converted are reported.
func TestReviewSpecSurvivesConversionToAttributes(t *testing.T) {
	for in, want := range map[string]struct{ spec, problems string }{
		`{"user":"a","groups":["g"],"uid":"u","extra":{"k":["v"]},"nonResourceAttributes":{"path":"/x","verb":"get"}}`: {
			spec: `{"nonResourceAttributes":{"path":"/x","verb":"get"},"user":"a","groups":["g"],"extra":{"k":["v"]},"uid":"u"}`},
		`{"user":"a","resourceAttributes":{"verb":"list","resource":"pods"}}`: {spec: `{"resourceAttributes":{"verb":"list","version":"*","resource":"pods"},"user":"a"}`},
		`{"user":"a","resourceAttributes":{"verb":"list","version":"v1","resource":"pods","fieldSelector":{"rawSelector":"a=b,c!=d"},"labelSelector":{"rawSelector":"x in (z,y),w"}}}`: {
			spec: `{"resourceAttributes":{"verb":"list","version":"v1","resource":"pods","fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]},{"key":"c","operator":"NotIn","values":["d"]}]},` +
				`"labelSelector":{"requirements":[{"key":"w","operator":"Exists"},{"key":"x","operator":"In","values":["y","z"]}]}},"user":"a"}`},
		`{"user":"a","resourceAttributes":{"verb":"list","version":"v1","resource":"pods","fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b","c"]},{"key":"d","operator":"In","values":["e"]},{"key":"f","operator":"Gt","values":["1"]}]},` +
			`"labelSelector":{"requirements":[{"key":"x","operator":"In"}]}}}`: {
			spec:     `{"resourceAttributes":{"verb":"list","version":"v1","resource":"pods","fieldSelector":{"requirements":[{"key":"d","operator":"In","values":["e"]}]}},"user":"a"}`,
			problems: "spec.resourceAttributes.fieldSelector partially ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse error"},
	} {
		var spec authorizationv1.SubjectAccessReviewSpec
		if err := json.Unmarshal([]byte(in), &spec); err != nil {
			t.Fatal(err)
		}
		a, problems := authorizer.AttributesOf(authorizer.UserOf(&spec), spec.ResourceAttributes, spec.NonResourceAttributes)
		out, err := json.Marshal(a.Spec())
		if err != nil {
			t.Fatal(err)
		}
		if string(out) != want.spec {
			t.Errorf("%s\ngives %s\nwant  %s", in, out, want.spec)
		}
		if st := authorizer.StatusOf(authorizer.Deny, "r", nil, problems); !st.Denied || st.Allowed ||
			st.Reason != "r" || st.EvaluationError != want.problems {
			t.Errorf("%s: got status %+v, want it denied with reason r and error %q", in, st, want.problems)
		}
	}
	if st := authorizer.StatusOf(authorizer.Allow, "", errors.New("x"),
		[]*authorizer.SelectorError{{Field: "labelSelector"}}); st.EvaluationError != "x; spec.resourceAttributes.labelSelector ignored due to parse error" {
		t.Errorf("evaluation error %q, want \"x; spec.resourceAttributes.labelSelector ignored due to parse error\"",
			st.EvaluationError)
	}
}

// TestLongSelectorsAreIgnored checks that long selectors are ignored and reported.
func TestLongSelectorsAreIgnored(t *testing.T) {
	long := strings.Repeat("a=b,", 5000) + "a=b"
	attributes, problems := authorizer.AttributesOf(nil, &authorizationv1.ResourceAttributes{
		FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: long},
		LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: long},
	}, nil)
	if len(attributes.FieldSelector)+len(attributes.LabelSelector) > 0 || len(problems) != 2 {
		t.Errorf("got %d and %d requirements, problems: %v, want no requirements and 2 problems",
			len(attributes.FieldSelector), len(attributes.LabelSelector), problems)
	}
	short := long[:1<<14-1]
	attributes, problems = authorizer.AttributesOf(nil, &authorizationv1.ResourceAttributes{
		FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: short},
		LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: short},
	}, nil)
	if len(attributes.FieldSelector) != 4096 || len(attributes.LabelSelector) != 4096 || len(problems) > 0 {
		t.Errorf("got %d and %d requirements, problems: %v, want 4096 of each and no problems", len(attributes.FieldSelector),
			len(attributes.LabelSelector), problems)
	}
}
