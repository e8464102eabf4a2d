package policy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/audit/policy"
)

const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"

func mustParse(t *testing.T, rules string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(head+rules), func(why string) { t.Errorf("got warning %q, want none", why) })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func resolveInfo(method, path string) *requestinfo.Info {
	catalog, err := registry.NewCatalog(nil, nil)
	if err != nil {
		panic(err)
	}
	return requestinfo.Resolve(httptest.NewRequest(method, path, nil), apiset.Builder{}.Set(catalog, 0))
}

// TestRuleMatchesRequests checks that a rule of level Metadata is matched against requests.
func TestRuleMatchesRequests(t *testing.T) {
	ada := &request.User{Name: "ada", Groups: []string{"staff", "system:authenticated"}}
	const pods, log = "/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/p/log"
	for _, test := range []struct {
		rule, method, path string
		user               *request.User
		want               bool
	}{
		{rule: "", method: "GET", path: "/livez", user: ada, want: true},
		{rule: "", method: "GET", path: pods, user: nil, want: true},
		{rule: "users: [ada]", method: "GET", path: pods, user: ada, want: true},
		{rule: "users: [eve]", method: "GET", path: pods, user: ada, want: false},
		{rule: "users: [ada]", method: "GET", path: pods, user: nil, want: false},
		{rule: "userGroups: [other, staff]", method: "GET", path: pods, user: ada, want: true},
		{rule: "userGroups: [other]", method: "GET", path: pods, user: ada, want: false},
		{rule: "userGroups: [staff]", method: "GET", path: pods, user: nil, want: false},
		{rule: "verbs: [list]", method: "GET", path: pods, user: ada, want: true},
		{rule: "verbs: [get]", method: "GET", path: pods, user: ada, want: false},
		{rule: "verbs: [get]", method: "GET", path: "/livez", user: ada, want: true},
		{rule: "verbs: ['*']", method: "GET", path: "/livez", user: ada, want: false},
		{rule: "namespaces: [a]", method: "GET", path: pods, user: ada, want: true},
		{rule: "namespaces: [b]", method: "GET", path: pods, user: ada, want: false},
		{rule: "namespaces: ['']", method: "GET", path: "/api/v1/nodes", user: ada, want: true},
		{rule: "namespaces: ['']", method: "GET", path: "/livez", user: ada, want: false},
		{rule: "resources: [{group: ''}]", method: "GET", path: log, user: ada, want: true},
		{rule: "resources: [{group: apps}]", method: "GET", path: log, user: ada, want: false},
		{rule: "resources: [{group: apps}]", method: "GET", path: "/apis/apps/v1/deployments", user: ada, want: true},
		{rule: "resources: [{group: '', resources: [pods]}]", method: "GET", path: pods, user: ada, want: true},
		{rule: "resources: [{group: '', resources: [pods]}]", method: "GET", path: log, user: ada, want: false},
		{rule: "resources: [{group: '', resources: [pods/log]}]", method: "GET", path: log, user: ada, want: true},
		{rule: "resources: [{group: '', resources: [pods/log]}]", method: "GET", path: pods, user: ada, want: false},
		{rule: "resources: [{group: '', resources: ['pods/*']}]", method: "GET", path: log, user: ada, want: true},
		{rule: "resources: [{group: '', resources: ['pods/*']}]", method: "GET", path: pods, user: ada, want: true},
		{rule: "resources: [{group: '', resources: ['*/log']}]", method: "GET", path: log, user: ada, want: true},
		{rule: "resources: [{group: '', resources: ['*/log']}]", method: "GET", path: pods, user: ada, want: false},
		{rule: "resources: [{group: '', resources: [nodes]}]", method: "GET", path: pods, user: ada, want: false},
		{rule: "resources: [{group: '', resources: [nodes/log]}]", method: "GET", path: log, user: ada, want: false},
		{rule: "resources: [{group: '', resources: ['nodes/*']}]", method: "GET", path: log, user: ada, want: false},
		{rule: "resources: [{group: '', resources: ['*/status']}]", method: "GET", path: log, user: ada, want: false},
		{rule: "resources: [{group: '', resources: ['*/']}]", method: "GET", path: pods, user: ada, want: false},
		{rule: "resources: [{group: '', resources: ['*']}]", method: "GET", path: log, user: ada, want: true},
		{
			rule:   "resources: [{group: '', resources: [pods], resourceNames: [p]}]",
			method: "GET",
			path:   pods + "/p",
			user:   ada,
			want:   true,
		},
		{
			rule:   "resources: [{group: '', resources: [pods], resourceNames: [p]}]",
			method: "GET",
			path:   pods + "/q",
			user:   ada,
			want:   false,
		},
		{rule: "resources: [{group: '', resources: [pods], resourceNames: [p]}]", method: "POST", path: pods, user: ada, want: false},
		{
			rule:   "resources: [{group: '', resources: [nodes]}, {group: '', resources: [pods]}]",
			method: "GET",
			path:   pods,
			user:   ada,
			want:   true,
		},
		{rule: "nonResourceURLs: [/livez]", method: "GET", path: "/livez", user: ada, want: true},
		{rule: "nonResourceURLs: [/livez]", method: "GET", path: "/livez/etcd", user: ada, want: false},
		{rule: "nonResourceURLs: ['/livez*']", method: "GET", path: "/livez/etcd", user: ada, want: true},
		{rule: "nonResourceURLs: ['*']", method: "GET", path: "/anything", user: ada, want: true},
		{rule: "nonResourceURLs: ['*']", method: "GET", path: pods, user: ada, want: false},
	} {
		p := mustParse(t, "rules:\n- {level: Metadata, "+test.rule+"}\n- {level: None}\n")
		if got := p.Decide(resolveInfo(test.method, test.path), test.user).Level == audit.Metadata; got != test.want {
			t.Errorf("%s matches %s %s: got %v, want %v", test.rule, test.method, test.path, got, test.want)
		}
	}
}

// TestFirstMatchingRuleDecides checks that the first matching rule decides, and that it inherits
// the omissions of the policy.
func TestFirstMatchingRuleDecides(t *testing.T) {
	compiled := mustParse(t, `
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: Request, verbs: [get], omitStages: [Panic], omitManagedFields: false}
- {level: RequestResponse, verbs: [get, create]}
`)
	for path, want := range map[string]audit.Decision{
		"GET /livez": {Level: audit.Request, Omit: audit.SetOf(audit.RequestReceived, audit.Panic)},
		"POST /api/v1/namespaces/a/pods": {
			Level:             audit.RequestResponse,
			Omit:              audit.SetOf(audit.RequestReceived),
			OmitManagedFields: true,
		},
		"DELETE /api/v1/namespaces/a/pods/p": {Level: audit.None, Omit: audit.SetOf(audit.RequestReceived), OmitManagedFields: true},
	} {
		method, url, _ := strings.Cut(path, " ")
		if got := compiled.Decide(resolveInfo(method, url), nil); got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
}

// TestUnknownFieldsAreWarnings checks that a policy for a later version is accepted with warnings.
func TestUnknownFieldsAreWarnings(t *testing.T) {
	for text, want := range map[string]string{
		head + "rules: [{level: Metadata, bogus: 1}]":               `unknown field "rules[0].bogus"`,
		head + "rules: [{level: Metadata}]\nrules: [{level: None}]": `key "rules" already set in map`,
	} {
		var warned []string
		p, err := policy.Parse([]byte(text), func(why string) { warned = append(warned, why) })
		if err != nil {
			t.Errorf("Parse(%q): got error %v, want none", text, err)
			continue
		}
		if len(warned) != 1 || !strings.Contains(warned[0], want) {
			t.Errorf("%q: warned %q, want %q", text, warned, want)
		}
		p.Decide(resolveInfo(http.MethodGet, "/livez"), nil)
	}
}

// FuzzParse checks that any file gives either a policy that can decide or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "rules: [{level: Metadata, resources: [{group: '', resources: [pods/log]}], omitStages: [Panic]}]"))
	f.Add([]byte(head + "rules: [{level: None, nonResourceURLs: ['*', /a*, '']}]"))
	f.Add([]byte(`{"kind":"Policy"`))
	f.Add([]byte(""))
	info := resolveInfo(http.MethodGet, "/api/v1/namespaces/a/pods/p/log")
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := policy.Parse(data, func(string) {})
		if (p == nil) != (err != nil) {
			t.Fatalf("Parse: got policy %v and error %v, want exactly one of them", p, err)
		}
		if p != nil {
			p.Decide(info, nil)
		}
	})
}
