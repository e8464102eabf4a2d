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

func parse(t *testing.T, rules string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(head+rules), func(why string) { t.Errorf("warned: %s", why) })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func resolve(method, path string) *requestinfo.Info {
	catalog, err := registry.NewCatalog(nil, nil)
	if err != nil {
		panic(err)
	}
	return requestinfo.Resolve(httptest.NewRequest(method, path, nil), apiset.Builder{}.Set(catalog, 0))
}

// A rule of level Metadata is matched against requests.
func TestRuleMatching(t *testing.T) {
	ada := &request.User{Name: "ada", Groups: []string{"staff", "system:authenticated"}}
	const pods, log = "/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/p/log"
	for _, c := range []struct {
		rule, method, path string
		user               *request.User
		want               bool
	}{
		{"", "GET", "/livez", ada, true},
		{"", "GET", pods, nil, true},
		{"users: [ada]", "GET", pods, ada, true},
		{"users: [eve]", "GET", pods, ada, false},
		{"users: [ada]", "GET", pods, nil, false},
		{"userGroups: [other, staff]", "GET", pods, ada, true},
		{"userGroups: [other]", "GET", pods, ada, false},
		{"userGroups: [staff]", "GET", pods, nil, false},
		{"verbs: [list]", "GET", pods, ada, true},
		{"verbs: [get]", "GET", pods, ada, false},
		{"verbs: [get]", "GET", "/livez", ada, true},
		{"verbs: ['*']", "GET", "/livez", ada, false},
		{"namespaces: [a]", "GET", pods, ada, true},
		{"namespaces: [b]", "GET", pods, ada, false},
		{"namespaces: ['']", "GET", "/api/v1/nodes", ada, true},
		{"namespaces: ['']", "GET", "/livez", ada, false},
		{"resources: [{group: ''}]", "GET", log, ada, true},
		{"resources: [{group: apps}]", "GET", log, ada, false},
		{"resources: [{group: apps}]", "GET", "/apis/apps/v1/deployments", ada, true},
		{"resources: [{group: '', resources: [pods]}]", "GET", pods, ada, true},
		{"resources: [{group: '', resources: [pods]}]", "GET", log, ada, false},
		{"resources: [{group: '', resources: [pods/log]}]", "GET", log, ada, true},
		{"resources: [{group: '', resources: [pods/log]}]", "GET", pods, ada, false},
		{"resources: [{group: '', resources: ['pods/*']}]", "GET", log, ada, true},
		{"resources: [{group: '', resources: ['pods/*']}]", "GET", pods, ada, true},
		{"resources: [{group: '', resources: ['*/log']}]", "GET", log, ada, true},
		{"resources: [{group: '', resources: ['*/log']}]", "GET", pods, ada, false},
		{"resources: [{group: '', resources: [nodes]}]", "GET", pods, ada, false},
		{"resources: [{group: '', resources: [nodes/log]}]", "GET", log, ada, false},
		{"resources: [{group: '', resources: ['nodes/*']}]", "GET", log, ada, false},
		{"resources: [{group: '', resources: ['*/status']}]", "GET", log, ada, false},
		{"resources: [{group: '', resources: ['*/']}]", "GET", pods, ada, false},
		{"resources: [{group: '', resources: ['*']}]", "GET", log, ada, true},
		{"resources: [{group: '', resources: [pods], resourceNames: [p]}]", "GET", pods + "/p", ada, true},
		{"resources: [{group: '', resources: [pods], resourceNames: [p]}]", "GET", pods + "/q", ada, false},
		{"resources: [{group: '', resources: [pods], resourceNames: [p]}]", "POST", pods, ada, false},
		{"resources: [{group: '', resources: [nodes]}, {group: '', resources: [pods]}]", "GET", pods, ada, true},
		{"nonResourceURLs: [/livez]", "GET", "/livez", ada, true},
		{"nonResourceURLs: [/livez]", "GET", "/livez/etcd", ada, false},
		{"nonResourceURLs: ['/livez*']", "GET", "/livez/etcd", ada, true},
		{"nonResourceURLs: ['*']", "GET", "/anything", ada, true},
		{"nonResourceURLs: ['*']", "GET", pods, ada, false},
	} {
		p := parse(t, "rules:\n- {level: Metadata, "+c.rule+"}\n- {level: None}\n")
		if got := p.Decide(resolve(c.method, c.path), c.user).Level == audit.Metadata; got != c.want {
			t.Errorf("%s matches %s %s: got %v, want %v", c.rule, c.method, c.path, got, c.want)
		}
	}
}

func TestFirstMatchingRuleDecides(t *testing.T) {
	p := parse(t, `
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: Request, verbs: [get], omitStages: [Panic], omitManagedFields: false}
- {level: RequestResponse, verbs: [get, create]}
`)
	for path, want := range map[string]audit.Decision{
		"GET /livez": {Level: audit.Request, Omit: audit.SetOf(audit.RequestReceived, audit.Panic)},
		"POST /api/v1/namespaces/a/pods": {
			Level: audit.RequestResponse, Omit: audit.SetOf(audit.RequestReceived), OmitManagedFields: true,
		},
		"DELETE /api/v1/namespaces/a/pods/p": {Level: audit.None, Omit: audit.SetOf(audit.RequestReceived), OmitManagedFields: true},
	} {
		method, url, _ := strings.Cut(path, " ")
		if got := p.Decide(resolve(method, url), nil); got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
}

// A policy for a later version is accepted with warnings.
func TestUnknownFieldsAreWarnings(t *testing.T) {
	for text, want := range map[string]string{
		head + "rules: [{level: Metadata, bogus: 1}]":               `unknown field "rules[0].bogus"`,
		head + "rules: [{level: Metadata}]\nrules: [{level: None}]": `key "rules" already set in map`,
	} {
		var warned []string
		p, err := policy.Parse([]byte(text), func(why string) { warned = append(warned, why) })
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if len(warned) != 1 || !strings.Contains(warned[0], want) {
			t.Errorf("%q: warned %q, want %q", text, warned, want)
		}
		p.Decide(resolve(http.MethodGet, "/livez"), nil)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "rules: [{level: Metadata, resources: [{group: '', resources: [pods/log]}], omitStages: [Panic]}]"))
	f.Add([]byte(head + "rules: [{level: None, nonResourceURLs: ['*', /a*, '']}]"))
	f.Add([]byte(`{"kind":"Policy"`))
	f.Add([]byte(""))
	op := resolve(http.MethodGet, "/api/v1/namespaces/a/pods/p/log")
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := policy.Parse(data, func(string) {})
		if (p == nil) != (err != nil) {
			t.Fatalf("%v, %v", p, err)
		}
		if p != nil {
			p.Decide(op, nil)
		}
	})
}
