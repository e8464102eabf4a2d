package policies_test

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/cache/objects"
)

// TestChangedPoliciesApplyToTheNextRequest checks that an undecodable new version leaves the former
// one in force until the policy is replaced or deleted.
func TestChangedPoliciesApplyToTheNextRequest(t *testing.T) {
	denyUnless := func(value string) string {
		return policy("p", `"validations":[{"expression":"object.data.a == '`+value+`'"}]`)
	}
	var damaged map[string]bool
	decode := func(what string, as func(*objects.Entry) (metav1.Object, error)) func(*objects.Entry) (metav1.Object, error) {
		return func(e *objects.Entry) (metav1.Object, error) {
			if damaged[what] {
				return nil, errors.New("damaged")
			}
			return as(e)
		}
	}
	f := newFixtureWith(t, func(s *dependencies) {
		s.policies.Decode, s.bindings.Decode = decode("policies", s.policies.Decode), decode("bindings", s.bindings.Decode)
	}, denyUnless("b"), boundPolicy("p", deny))
	for i, step := range []struct {
		put, gone, damaged string
		b, c               bool // whether the value is allowed
	}{
		{b: true},
		{put: denyUnless("c"), c: true},
		{put: denyUnless("b"), damaged: "policies", c: true},
		{put: denyUnless("b"), b: true},
		{put: boundPolicy("p", `"validationActions":["Audit"]`), damaged: "bindings", b: true},
		{put: boundPolicy("p", `"validationActions":["Audit"]`), b: true, c: true},
		{put: boundPolicy("p", deny), b: true},
		{gone: boundPolicy("p", deny), b: true, c: true},
		{put: boundPolicy("p", deny), b: true},
		{gone: denyUnless("b"), b: true, c: true},
		{put: denyUnless("c"), damaged: "policies"}, // no former version is known
		{put: denyUnless("c"), c: true},
	} {
		damaged = map[string]bool{step.damaged: true}
		if step.put+step.gone != "" {
			f.put(step.put+step.gone, step.put != "")
		}
		for range 2 { // the second request reads no policy
			for value, want := range map[string]bool{"b": step.b, "c": step.c} {
				err := f.validating.Validate(t.Context(), f.configMap("a", value))
				if (err == nil) != want || i == 10 && !strings.Contains(statusText(err), "not yet ready") {
					t.Errorf("step %d: %s: got error %v, want allowed: %t", i, value, err, want)
				}
			}
		}
	}
}
