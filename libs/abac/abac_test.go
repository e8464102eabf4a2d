package abac_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/libs/abac"
	"binnacle/libs/authorizer"
)

func policyLine(spec string) string {
	return `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{` + spec + `}}` + "\n"
}

// TestPoliciesAllowMatchingRequests checks which requests policies allow. A request is a verb, an
// API group ("-" for the core group), a resource and a namespace, or a verb and a path.
func TestPoliciesAllowMatchingRequests(t *testing.T) {
	policies, err := abac.Parse(strings.NewReader("# policies\n\n" +
		policyLine(`"user":"alice","namespace":"*","resource":"*","apiGroup":"*"`) +
		policyLine(`"user":"kubelet","namespace":"*","resource":"pods","readonly":true`) +
		policyLine(`"group":"dev","namespace":"a","resource":"events","apiGroup":"events.k8s.io"`) +
		policyLine(`"user":"carol","group":"ops","resource":"nodes"`) +
		policyLine(`"user":"*","nonResourcePath":"/api*","readonly":true`) +
		policyLine(`"group":"*","nonResourcePath":"/version"`) +
		policyLine(`"namespace":"*","resource":"*"`)))
	if err != nil {
		t.Fatal(err)
	}
	authenticated := "system:authenticated"
	for _, test := range []struct {
		user, groups, request string
		want                  bool
	}{
		{user: "alice", groups: "", request: "delete apps deployments a", want: true},
		{user: "alice", groups: "", request: "delete - nodes", want: true},
		{user: "alice", groups: "", request: "get /metrics", want: false},
		{user: "kubelet", groups: "", request: "watch - pods a", want: true},
		{user: "kubelet", groups: "", request: "list - pods a", want: true},
		{user: "kubelet", groups: "", request: "create - pods a", want: false},
		{user: "kubelet", groups: "", request: "get - secrets a", want: false},
		{user: "kubelet", groups: "", request: "get apps pods a", want: false},
		{user: "x", groups: "dev", request: "create events.k8s.io events a", want: true},
		{user: "x", groups: "dev", request: "create events.k8s.io events b", want: false},
		{user: "x", groups: "dev", request: "create events.k8s.io events", want: false},
		{user: "carol", groups: "", request: "get - nodes", want: false},
		{user: "carol", groups: "ops", request: "get - nodes", want: true},
		{user: "dan", groups: "ops", request: "get - nodes", want: false},
		{user: "dan", groups: authenticated, request: "get /apis", want: true},
		{user: "dan", groups: authenticated, request: "post /apis", want: false},
		{user: "dan", groups: "", request: "get /apis", want: false},
		{user: "dan", groups: authenticated, request: "post /version", want: true},
		{user: "dan", groups: authenticated, request: "get /versions", want: false},
		{user: "", groups: "", request: "get - pods a", want: false},
	} {
		words := strings.Fields(test.request)
		attributes := &authorizer.Attributes{User: &authorizer.User{Name: test.user, Groups: strings.Fields(test.groups)}, Verb: words[0]}
		if strings.HasPrefix(words[1], "/") {
			attributes.Path = words[1]
		} else {
			attributes.Resource, attributes.Group, attributes.ResourceName = true, strings.TrimPrefix(words[1], "-"), words[2]
			if len(words) > 3 {
				attributes.Namespace = words[3]
			}
		}
		decision, reason, err := policies.Authorize(context.Background(), attributes)
		if err != nil || (decision == authorizer.Allow) != test.want || decision == authorizer.NoOpinion && reason != "No policy matched." {
			t.Errorf("%s (%s) %s: got %v, reason %q, error %v, want allowed: %t", test.user, test.groups, test.request, decision, reason, err, test.want)
		}
	}
}

// TestRulesForListsPoliciesOfUserAndNamespace checks that rules of other users and namespaces are
// left out, and that a read-only policy has three verbs.
func TestRulesForListsPoliciesOfUserAndNamespace(t *testing.T) {
	policies, err := abac.Parse(strings.NewReader(
		policyLine(`"user":"kubelet","namespace":"*","resource":"pods","readonly":true`) +
			policyLine(`"group":"dev","namespace":"a","resource":"events"`) +
			policyLine(`"user":"alice","namespace":"*","resource":"*"`) +
			policyLine(`"user":"*","nonResourcePath":"/api*","readonly":true`)))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policies.RulesFor(t.Context(), &authorizer.User{Name: "kubelet", Groups: []string{"system:authenticated", "dev"}}, "b")
	if err != nil || len(rules.Resource) != 1 || len(rules.Resource[0].Verbs) != 3 || len(rules.NonResource) != 1 {
		t.Errorf("got rules %+v, error %v, want one resource rule with 3 verbs, and one rule for paths", rules, err)
	}
}

// TestErrorsOfPolicyFileNameLineAndProblem checks that errors of a policy file name the line and
// the problem.
func TestErrorsOfPolicyFileNameLineAndProblem(t *testing.T) {
	validLine := policyLine(`"user":"a"`)
	for text, want := range map[string]string{
		validLine + `{"usr":"a"}`:                        `line 2: json: unknown field "usr"`,
		validLine + "\n{":                                "line 3: unexpected EOF",
		policyLine(`"usr":"a"`):                          `line 1: json: unknown field "usr"`,
		policyLine(`"user":1`):                           "line 1: json: cannot unmarshal number",
		strings.Replace(validLine, "Policy", "Other", 1): `kind "Other": want`,
		`{"kind":"Role"}`:                                `line 1: kind "Role": want Policy`,
		`{"spec":{"user":"alice"}}`:                      `line 1: json: unknown field "spec"`,
		`{"user":"alice","apiGroup":"apps"}`:             `line 1: json: unknown field "apiGroup"`,
		strings.TrimSpace(validLine) + validLine:         "line 1: more than one object",
		validLine + strings.Repeat("x", 2<<20):           "line 2: bufio.Scanner: token too long",
	} {
		if _, err := abac.Parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "policy.jsonl")
	if _, err := abac.Load(file, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("absent file: %v, want an error with %q", err, file)
	}
	if err := os.WriteFile(file, []byte(validLine+"x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := abac.Load(file, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), file+": line 2") {
		t.Errorf("broken file: %v, want an error with %q", err, file+": line 2")
	}
}

// TestResourceAndPathPoliciesAreSeparate checks that a policy for resources allows no paths, and
// vice versa.
func TestResourceAndPathPoliciesAreSeparate(t *testing.T) {
	policies, err := abac.Parse(strings.NewReader(policyLine(`"user":"alice","namespace":"*","resource":"pods"`) +
		policyLine(`"user":"bob","namespace":"*","nonResourcePath":"/x"`)))
	if err != nil {
		t.Fatal(err)
	}
	if decision, _, _ := policies.Authorize(t.Context(), &authorizer.Attributes{
		User: &authorizer.User{Name: "alice"},
		Verb: "get",
	}); decision != authorizer.NoOpinion {
		t.Errorf("Authorize() of an empty path with a policy without a path: got %v, want %v", decision, authorizer.NoOpinion)
	}
	for user, want := range map[string][2]int{"alice": {1, 0}, "bob": {0, 1}, "carol": {0, 0}} {
		rules, err := policies.RulesFor(t.Context(), &authorizer.User{Name: user}, "a")
		if err != nil || len(rules.Resource) != want[0] || len(rules.NonResource) != want[1] {
			t.Errorf("%s: got rules %+v, %v, want %d of resources and %d of other paths", user, rules, err, want[0], want[1])
		}
	}
}

// FuzzParse checks that parsing does not panic, and that no policy allows a request of a user
// without a name.
func FuzzParse(f *testing.F) {
	f.Add([]byte(policyLine(`"user":"*","nonResourcePath":"/a*"`)))
	f.Add([]byte("# x\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		policies, err := abac.Parse(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		for _, attributes := range []*authorizer.Attributes{
			{User: &authorizer.User{}, Path: "/a"},
			{User: &authorizer.User{}, Resource: true},
			{},
		} {
			if decision, _, _ := policies.Authorize(context.Background(), attributes); decision != authorizer.NoOpinion {
				t.Errorf("user without a name: %q: got decision %v, want %v", data, decision, authorizer.NoOpinion)
			}
		}
	})
}

// TestUnsetFieldsOfUnversionedPolicyMatchEverything checks policies without a version, which have
// other defaults.
func TestUnsetFieldsOfUnversionedPolicyMatchEverything(t *testing.T) {
	for _, test := range []struct {
		policy         string
		allows, denies []authorizer.Attributes
	}{
		{
			policy: `{"user":"alice","resource":"pods","readonly":true,"namespace":"ns"}`,
			allows: []authorizer.Attributes{resource("alice", "", "get", "", "pods", "ns"),
				resource("alice", "", "list", "apps", "pods", "ns")},
			denies: []authorizer.Attributes{
				resource("alice", "", "create", "", "pods", "ns"), resource("alice", "", "get", "", "pods", "other"),
				resource("alice", "", "get", "", "secrets", "ns"),
				resource("bob", "", "get", "", "pods", "ns"), path("alice", "", "/version"),
			},
		},
		{
			policy: `{"group":"ops","namespace":"ns"}`,
			allows: []authorizer.Attributes{resource("x", "ops", "delete", "apps", "deployments", "ns")},
			denies: []authorizer.Attributes{resource("x", "dev", "get", "", "pods", "ns"),
				resource("x", "ops", "get", "", "nodes", ""), path("x", "ops", "/version")},
		},
		{
			policy: `{"user":"alice"}`,
			allows: []authorizer.Attributes{resource("alice", "", "delete", "", "nodes", ""), path("alice", "", "/metrics")},
			denies: []authorizer.Attributes{path("bob", "system:authenticated", "/metrics")},
		},
		{
			policy: `{"user":"*","resource":"pods"}`,
			allows: []authorizer.Attributes{resource("x", "system:authenticated", "create", "", "pods", "a")},
			denies: []authorizer.Attributes{resource("x", "system:unauthenticated", "get", "", "pods", "a")},
		},
		{
			policy: `{"user":"alice","group":"*","readonly":true}`,
			allows: []authorizer.Attributes{resource("x", "system:authenticated", "get", "", "pods", "a")},
			denies: []authorizer.Attributes{resource("x", "system:authenticated", "create", "", "pods", "a")},
		},
		{
			policy: `{}`,
			allows: []authorizer.Attributes{resource("x", "system:authenticated", "create", "", "pods", "a"),
				path("x", "system:authenticated", "/x")},
			denies: []authorizer.Attributes{path("x", "system:unauthenticated", "/x")},
		},
		{
			policy: policyLine(`"user":"alice","resource":"pods"`) +
				`{"apiVersion":"abac.authorization.kubernetes.io/v0","kind":"Policy","user":"bob","resource":"pods"}`,
			allows: []authorizer.Attributes{resource("alice", "", "get", "", "pods", ""),
				resource("bob", "", "get", "", "pods", "a")},
			denies: []authorizer.Attributes{resource("alice", "", "get", "", "pods", "a")},
		},
	} {
		policies, err := abac.Parse(strings.NewReader(test.policy))
		if err != nil {
			t.Errorf("%s: %v", test.policy, err)
			continue
		}
		for want, list := range map[authorizer.Decision][]authorizer.Attributes{
			authorizer.Allow:     test.allows,
			authorizer.NoOpinion: test.denies,
		} {
			for i := range list {
				if decision, _, _ := policies.Authorize(context.Background(), &list[i]); decision != want {
					t.Errorf("%s: %+v of %+v: %v, want %v", test.policy, list[i], list[i].User, decision, want)
				}
			}
		}
	}
}

// TestUnversionedPoliciesAreLogged checks that Load warns about lines in the unversioned form, and
// only then.
func TestUnversionedPoliciesAreLogged(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	file := filepath.Join(t.TempDir(), "policy.jsonl")
	for content, want := range map[string]bool{
		policyLine(`"user":"alice"`):                    false,
		policyLine(`"user":"alice"`) + `{"user":"bob"}`: true,
	} {
		logged.Reset()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := abac.Load(file, log); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(logged.String(), "unversioned form"); got != want {
			t.Errorf("%s: got log %q, want a line about the unversioned form: %t", content, logged.String(), want)
		}
	}
}

func resource(user, group, verb, apiGroup, name, namespace string) authorizer.Attributes {
	return authorizer.Attributes{
		User:         &authorizer.User{Name: user, Groups: []string{group}},
		Verb:         verb,
		Resource:     true,
		Group:        apiGroup,
		ResourceName: name,
		Namespace:    namespace,
	}
}

func path(user, group, path string) authorizer.Attributes {
	return authorizer.Attributes{User: &authorizer.User{Name: user, Groups: []string{group}}, Verb: "get", Path: path}
}
