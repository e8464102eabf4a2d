package policy_test

import (
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/security/audit/policy"
)

// TestInvalidPoliciesAreRejected checks that policies that would record less than they seem to, or
// nothing, are rejected.
func TestInvalidPoliciesAreRejected(t *testing.T) {
	for _, test := range []struct {
		text string
		want string // of the error; "" for none
	}{
		{text: head + "rules: [{level: None, resources: [{}]}]", want: ""},
		{
			text: head + "rules: [{level: None, resources: [{group: apps, resources: [x], resourceNames: [z]}], namespaces: [a]}]",
			want: "",
		},
		{text: head + "rules: [{level: None, nonResourceURLs: ['*', /a, '/a*']}]", want: ""},
		{text: head + "omitStages: [Panic]\nrules: [{level: None, omitStages: [ResponseStarted]}]", want: ""},
		{text: "kind: Policy\nrules: [{level: None}]", want: "unknown group version field"},
		{text: "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]", want: "failed decoding"},
		{text: head, want: "loaded illegal policy with 0 rules"},
		{text: head + "rules: [{}]", want: "rules[0].level: Required value"},
		{
			text: head + "rules: [{level: None}, {level: Odd}]",
			want: `rules[1].level: Unsupported value: "Odd": supported values: "None", "Metadata", "Request", "RequestResponse"`,
		},
		{text: head + "omitStages: [Odd]\nrules: [{level: None}]", want: `omitStages[0]: Invalid value: "Odd": allowed stages are`},
		{
			text: head + "rules: [{level: None, omitStages: [Panic, Odd]}]",
			want: `rules[0].omitStages[1]: Invalid value: "Odd": allowed stages are`,
		},
		{text: head + "rules: [{level: None, nonResourceURLs: [a]}]", want: "must begin with a '/' character"},
		{text: head + "rules: [{level: None, nonResourceURLs: ['']}]", want: "must begin with a '/' character"},
		{text: head + "rules: [{level: None, nonResourceURLs: ['/*/a']}]", want: "must be the final character of the rule"},
		{
			text: head + "rules: [{level: None, nonResourceURLs: [/a], resources: [{}]}]",
			want: "rules cannot apply to both regular resources and non-resource URLs",
		},
		{
			text: head + "rules: [{level: None, nonResourceURLs: [/a], namespaces: [a]}]",
			want: "rules cannot apply to both regular resources and non-resource URLs",
		},
		{text: head + "rules: [{level: None, resources: [{group: A_b}]}]", want: `rules[0].resources.group: Invalid value: "A_b"`},
		{
			text: head + "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
			want: "using resourceNames requires at least one resource",
		},
	} {
		p, err := policy.Parse([]byte(test.text), func(why string) { t.Errorf("Parse(%q): got warning %q, want none", test.text, why) })
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) || (p == nil) != (err != nil) {
			t.Errorf("%q: %v, want %q", test.text, err, test.want)
		}
	}
}
