package policy_test

import (
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/security/audit/policy"
)

// TestInvalidPoliciesAreRejected: policies that would record less than they seem to, or nothing,
// are rejected.
func TestInvalidPoliciesAreRejected(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // of the error; "" for none
	}{
		{head + "rules: [{level: None, resources: [{}]}]", ""},
		{head + "rules: [{level: None, resources: [{group: apps, resources: [x], resourceNames: [z]}], namespaces: [a]}]", ""},
		{head + "rules: [{level: None, nonResourceURLs: ['*', /a, '/a*']}]", ""},
		{head + "omitStages: [Panic]\nrules: [{level: None, omitStages: [ResponseStarted]}]", ""},
		{"kind: Policy\nrules: [{level: None}]", "unknown group version field"},
		{"apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]", "failed decoding"},
		{head, "loaded illegal policy with 0 rules"},
		{head + "rules: [{}]", "rules[0].level: Required value"},
		{head + "rules: [{level: None}, {level: Odd}]", `rules[1].level: Unsupported value: "Odd": supported values: "None", "Metadata", "Request", "RequestResponse"`},
		{head + "omitStages: [Odd]\nrules: [{level: None}]", `omitStages[0]: Invalid value: "Odd": allowed stages are`},
		{head + "rules: [{level: None, omitStages: [Panic, Odd]}]", `rules[0].omitStages[1]: Invalid value: "Odd": allowed stages are`},
		{head + "rules: [{level: None, nonResourceURLs: [a]}]", "must begin with a '/' character"},
		{head + "rules: [{level: None, nonResourceURLs: ['']}]", "must begin with a '/' character"},
		{head + "rules: [{level: None, nonResourceURLs: ['/*/a']}]", "must be the final character of the rule"},
		{head + "rules: [{level: None, nonResourceURLs: [/a], resources: [{}]}]", "rules cannot apply to both regular resources and non-resource URLs"},
		{head + "rules: [{level: None, nonResourceURLs: [/a], namespaces: [a]}]", "rules cannot apply to both regular resources and non-resource URLs"},
		{head + "rules: [{level: None, resources: [{group: A_b}]}]", `rules[0].resources.group: Invalid value: "A_b"`},
		{head + "rules: [{level: None, resources: [{resourceNames: [a]}]}]", "using resourceNames requires at least one resource"},
	} {
		p, err := policy.Parse([]byte(c.text), func(why string) { t.Errorf("Parse(%q): got warning %q, want none", c.text, why) })
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || (p == nil) != (err != nil) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}
