package policies_test

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/cache/objects"
)

// TestChangedPoliciesApplyToTheNextRequest checks that an undecodable new version leaves the former
// one in force until the policy is replaced or deleted. The steps build on each other.
func TestChangedPoliciesApplyToTheNextRequest(t *testing.T) {
	// 1. Start with a bound policy that allows config maps with a=b only.
	denyUnless := func(value string) string {
		return policy("p", `"validations":[{"expression":"object.data.a == '`+value+`'"}]`)
	}
	denyBinding := boundPolicy("p", deny)
	auditBinding := boundPolicy("p", `"validationActions":["Audit"]`)
	var damaged string // name of the source whose objects cannot be decoded, if any
	type decodeFunc = func(*objects.Entry) (metav1.Object, error)
	failIfDamaged := func(source string, decode decodeFunc) decodeFunc {
		return func(e *objects.Entry) (metav1.Object, error) {
			if damaged == source {
				return nil, errors.New("damaged")
			}
			return decode(e)
		}
	}
	fixture := newFixtureWith(t, func(d *dependencies) {
		d.policies.Decode = failIfDamaged("policies", d.policies.Decode)
		d.bindings.Decode = failIfDamaged("bindings", d.bindings.Decode)
	}, denyUnless("b"), denyBinding)

	// 2. Change the policy and its binding, and send config maps with a=b and a=c after each change.
	const allowed, rejected, notReady = "", "failed expression", "not yet ready"
	for _, step := range []struct {
		name         string
		put, remove  string // object to write or to delete, as JSON
		damaged      string
		wantB, wantC string // part of the error for a=b and for a=c
	}{
		{name: "initial policy", wantB: allowed, wantC: rejected},
		{name: "changed policy", put: denyUnless("c"), wantB: rejected, wantC: allowed},
		{name: "undecodable policy", put: denyUnless("b"), damaged: "policies", wantB: rejected, wantC: allowed},
		{name: "policy decodable again", put: denyUnless("b"), wantB: allowed, wantC: rejected},
		{name: "undecodable binding", put: auditBinding, damaged: "bindings", wantB: allowed, wantC: rejected},
		{name: "binding decodable again", put: auditBinding, wantB: allowed, wantC: allowed},
		{name: "changed binding", put: denyBinding, wantB: allowed, wantC: rejected},
		{name: "deleted binding", remove: denyBinding, wantB: allowed, wantC: allowed},
		{name: "recreated binding", put: denyBinding, wantB: allowed, wantC: rejected},
		{name: "deleted policy", remove: denyUnless("b"), wantB: allowed, wantC: allowed},
		{name: "recreated policy undecodable", put: denyUnless("c"), damaged: "policies", wantB: notReady, wantC: notReady},
		{name: "recreated policy decodable", put: denyUnless("c"), wantB: rejected, wantC: allowed},
	} {
		damaged = step.damaged
		if step.put != "" {
			fixture.put(step.put)
		}
		if step.remove != "" {
			fixture.remove(step.remove)
		}
		for _, attempt := range []string{"first request", "second request, which compiles no policy"} {
			for value, want := range map[string]string{"b": step.wantB, "c": step.wantC} {
				got := statusText(fixture.validating.Validate(t.Context(), fixture.configMap("a", value)))
				if (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%s, a=%s, %s: got error %q, want one that contains %q, or none if that is empty",
						step.name, value, attempt, got, want)
				}
			}
		}
	}
}
