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

// TestPoliciesAllowMatchingRequests checks which requests policies allow.
func TestPoliciesAllowMatchingRequests(t *testing.T) {
	z, err := abac.Parse(strings.NewReader("# policies\n\n" +
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
		user, groups, ask string
		want              bool
	}{
		{user: "alice", groups: "", ask: "delete apps deployments a", want: true},
		{user: "alice", groups: "", ask: "delete - nodes", want: true},
		{user: "alice", groups: "", ask: "get /metrics", want: false},
		{user: "kubelet", groups: "", ask: "watch - pods a", want: true},
		{user: "kubelet", groups: "", ask: "list - pods a", want: true},
		{user: "kubelet", groups: "", ask: "create - pods a", want: false},
		{user: "kubelet", groups: "", ask: "get - secrets a", want: false},
		{user: "kubelet", groups: "", ask: "get apps pods a", want: false},
		{user: "x", groups: "dev", ask: "create events.k8s.io events a", want: true},
		{user: "x", groups: "dev", ask: "create events.k8s.io events b", want: false},
		{user: "x", groups: "dev", ask: "create events.k8s.io events", want: false},
		{user: "carol", groups: "", ask: "get - nodes", want: false},
		{user: "carol", groups: "ops", ask: "get - nodes", want: true},
		{user: "dan", groups: "ops", ask: "get - nodes", want: false},
		{user: "dan", groups: authenticated, ask: "get /apis", want: true},
		{user: "dan", groups: authenticated, ask: "post /apis", want: false},
		{user: "dan", groups: "", ask: "get /apis", want: false},
		{user: "dan", groups: authenticated, ask: "post /version", want: true},
		{user: "dan", groups: authenticated, ask: "get /versions", want: false},
		{user: "", groups: "", ask: "get - pods a", want: false},
	} {
		f := strings.Fields(test.ask)
		attributes := &authorizer.Attributes{User: &authorizer.User{Name: test.user, Groups: strings.Fields(test.groups)}, Verb: f[0]}
		if strings.HasPrefix(f[1], "/") {
			attributes.Path = f[1]
		} else {
			attributes.Resource, attributes.Group, attributes.ResourceName = true, strings.TrimPrefix(f[1], "-"), f[2]
			if len(f) > 3 {
				attributes.Namespace = f[3]
			}
		}
		d, why, err := z.Authorize(context.Background(), attributes)
		if err != nil || (d == authorizer.Allow) != test.want || d == authorizer.NoOpinion && why != "No policy matched." {
			t.Errorf("%s (%s) %s: got %v, reason %q, error %v, want allowed: %t", test.user, test.groups, test.ask, d, why, err, test.want)
		}
	}
	rules, err := z.RulesFor(context.Background(), &authorizer.User{Name: "kubelet", Groups: []string{authenticated, "dev"}}, "b")
	if err != nil || len(rules.Resource) != 1 || len(rules.Resource[0].Verbs) != 3 || len(rules.NonResource) != 2 {
		t.Errorf("rules are %+v, %v, want one resource rule with 3 verbs and 2 rules of other paths", rules, err)
	}
}

// TestInvalidFiles checks that errors of a policy file name the line and the problem.
func TestInvalidFiles(t *testing.T) {
	good := policyLine(`"user":"a"`)
	for text, want := range map[string]string{
		good + `{"usr":"a"}`:                        `line 2: json: unknown field "usr"`,
		good + "\n{":                                "line 3: unexpected EOF",
		policyLine(`"usr":"a"`):                     `line 1: json: unknown field "usr"`,
		policyLine(`"user":1`):                      "line 1: json: cannot unmarshal number",
		strings.Replace(good, "Policy", "Other", 1): `kind "Other": want`,
		`{"kind":"Role"}`:                           `line 1: kind "Role": want Policy`,
		`{"spec":{"user":"alice"}}`:                 `line 1: json: unknown field "spec"`,
		`{"user":"alice","apiGroup":"apps"}`:        `line 1: json: unknown field "apiGroup"`,
		strings.TrimSpace(good) + good:              "line 1: more than one object",
		good + strings.Repeat("x", 2<<20):           "line 2: bufio.Scanner: token too long",
	} {
		if _, err := abac.Parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "policy.jsonl")
	if _, err := abac.Load(file, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("absent file: %v, want an error with %q", err, file)
	}
	if err := os.WriteFile(file, []byte(good+"x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := abac.Load(file, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), file+": line 2") {
		t.Errorf("broken file: %v, want an error with %q", err, file+": line 2")
	}
}

// TestResourceAndPathPoliciesAreSeparate checks that a policy for resources allows no paths, and
// vice versa.
func TestResourceAndPathPoliciesAreSeparate(t *testing.T) {
	z, err := abac.Parse(strings.NewReader(policyLine(`"user":"alice","namespace":"*","resource":"pods"`) +
		policyLine(`"user":"bob","namespace":"*","nonResourcePath":"/x"`)))
	if err != nil {
		t.Fatal(err)
	}
	if d, _, _ := z.Authorize(t.Context(), &authorizer.Attributes{
		User: &authorizer.User{Name: "alice"},
		Verb: "get",
	}); d != authorizer.NoOpinion {
		t.Errorf("Authorize() of an empty path with a policy without a path: got %v, want %v", d, authorizer.NoOpinion)
	}
	for user, want := range map[string][2]int{"alice": {1, 0}, "bob": {0, 1}, "carol": {0, 0}} {
		rules, err := z.RulesFor(t.Context(), &authorizer.User{Name: user}, "a")
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
		z, err := abac.Parse(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		for _, attributes := range []*authorizer.Attributes{
			{User: &authorizer.User{}, Path: "/a"},
			{User: &authorizer.User{}, Resource: true},
			{},
		} {
			if d, _, _ := z.Authorize(context.Background(), attributes); d != authorizer.NoOpinion {
				t.Errorf("user without a name: %q: got decision %v, want %v", data, d, authorizer.NoOpinion)
			}
		}
	})
}

// TestUnversionedPolicies checks policies without a version, which have other defaults.
func TestUnversionedPolicies(t *testing.T) {
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
		z, err := abac.Parse(strings.NewReader(test.policy))
		if err != nil {
			t.Errorf("%s: %v", test.policy, err)
			continue
		}
		for want, list := range map[authorizer.Decision][]authorizer.Attributes{
			authorizer.Allow:     test.allows,
			authorizer.NoOpinion: test.denies,
		} {
			for i := range list {
				if d, _, _ := z.Authorize(context.Background(), &list[i]); d != want {
					t.Errorf("%s: %+v of %+v: %v, want %v", test.policy, list[i], list[i].User, d, want)
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
