package policies_test

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/cache/objects"
)

// TestChangedPoliciesApplyToTheNextRequest checks that a corrupt new version leaves the former one in
// force until the policy is replaced or deleted. The steps build on each other.
func TestChangedPoliciesApplyToTheNextRequest(t *testing.T) {
	// 1. Start with a bound policy that allows config maps with a=b only.
	denyUnless := func(value string) string {
		return validatingPolicy("p", `"validations":[{"expression":"object.data.a == '`+value+`'"}]`)
	}
	denyBinding := validatingBinding("p", deny)
	auditBinding := validatingBinding("p", `"validationActions":["Audit"]`)
	var corrupt string // name of the source whose objects cannot be decoded, if any
	type decodeFunc = func(*objects.Entry) (metav1.Object, error)
	failIfCorrupt := func(source string, decode decodeFunc) decodeFunc {
		return func(entry *objects.Entry) (metav1.Object, error) {
			if corrupt == source {
				return nil, errors.New("corrupt")
			}
			return decode(entry)
		}
	}
	fixture := newFixtureWith(t, func(d *dependencies) {
		d.policies.Decode = failIfCorrupt("policies", d.policies.Decode)
		d.bindings.Decode = failIfCorrupt("bindings", d.bindings.Decode)
	}, denyUnless("b"), denyBinding)

	// 2. Change the policy and its binding, and send config maps with a=b and a=c after each change.
	const allowed, rejected, notReady = "", "failed expression", "not yet ready"
	for _, step := range []struct {
		name         string
		put, remove  string // object to write or to delete, as JSON
		corrupt      string
		wantB, wantC string // part of the error for a=b and for a=c
	}{
		{name: "initial policy", wantB: allowed, wantC: rejected},
		{name: "changed policy", put: denyUnless("c"), wantB: rejected, wantC: allowed},
		{name: "corrupt policy", put: denyUnless("b"), corrupt: "policies", wantB: rejected, wantC: allowed},
		{name: "policy replaced", put: denyUnless("b"), wantB: allowed, wantC: rejected},
		{name: "corrupt binding", put: auditBinding, corrupt: "bindings", wantB: allowed, wantC: rejected},
		{name: "binding replaced", put: auditBinding, wantB: allowed, wantC: allowed},
		{name: "changed binding", put: denyBinding, wantB: allowed, wantC: rejected},
		{name: "deleted binding", remove: denyBinding, wantB: allowed, wantC: allowed},
		{name: "recreated binding", put: denyBinding, wantB: allowed, wantC: rejected},
		{name: "deleted policy", remove: denyUnless("b"), wantB: allowed, wantC: allowed},
		{name: "recreated policy corrupt", put: denyUnless("c"), corrupt: "policies", wantB: notReady, wantC: notReady},
		{name: "recreated policy replaced", put: denyUnless("c"), wantB: rejected, wantC: allowed},
	} {
		corrupt = step.corrupt
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
