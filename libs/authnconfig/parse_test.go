package authnconfig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"binnacle/libs/authnconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const header = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n"

// issuer returns a valid entry, followed by the lines of more.
func issuer(more ...string) string {
	return header + "jwt:\n- issuer:\n    url: https://one\n    audiences: [a]\n" + strings.Join(more, "")
}

const byName = "  claimMappings:\n    username: {claim: sub, prefix: ''}\n"

func TestParseGood(t *testing.T) {
	full, err := os.ReadFile(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"every field":  string(full),
		"v1alpha1":     strings.Replace(issuer(byName), "v1beta1", "v1alpha1", 1),
		"least":        header,
		"no issuer":    header + "jwt: []\n",
		"anonymous":    header + "anonymous: {enabled: true}\n",
		"conditions":   header + "anonymous: {enabled: true, conditions: [{path: /livez}]}\n",
		"JSON":         `{"apiVersion":"apiserver.config.k8s.io/v1beta1","kind":"AuthenticationConfiguration","jwt":[]}`,
		"email, sure":  issuer("  claimMappings:\n    username:\n      expression: claims.email\n  claimValidationRules:\n  - expression: claims.?email_verified.orValue(true) == true\n"),
		"email claim":  issuer("  claimMappings:\n    username: {claim: email, prefix: ''}\n"),
		"no email":     issuer("  claimMappings:\n    username:\n      expression: claims.emails[0]\n"),
		"MatchAny one": strings.Replace(issuer(byName), "[a]", "[a]\n    audienceMatchPolicy: MatchAny", 1),
		"no groups":    issuer(byName + "    groups: {prefix: ''}\n"),
		"64 issuers":   many(64),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := authnconfig.Parse([]byte(text), []string{"https://cluster"}); err != nil {
				t.Error(err)
			}
		})
	}
}

func many(n int) string {
	var b strings.Builder
	b.WriteString(header + "jwt:\n")
	for i := range n {
		fmt.Fprintf(&b, "- issuer: {url: 'https://%d', audiences: [a]}\n%s", i, byName)
	}
	return b.String()
}

func TestParseErrors(t *testing.T) {
	expr := func(e string) string { return "  claimMappings:\n    username:\n      expression: '" + e + "'\n" }
	more := func(lines string) string { return issuer(byName + lines) }
	rules := func(lines string) string { return more("  claimValidationRules:\n" + lines) }
	user := func(lines string) string { return more("  userValidationRules:\n" + lines) }
	extra := func(key, e string) string {
		return more("    extra:\n    - key: '" + key + "'\n      valueExpression: '" + e + "'\n")
	}
	tests := []struct{ name, text, want string }{
		{"empty", "", "the file is empty"},
		{"comment", "# nothing\n", "the file is empty"},
		{"null", "null\n", `kind is ""`},
		{"list", "- a\n", "cannot unmarshal array"},
		{"not YAML", "a: [\n", "did not find expected"},
		{"two documents", header + "---\n" + header, "more than one document"},
		{"kind", "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: X\n", `kind is "X"`},
		{"version", strings.Replace(header, "v1beta1", "v2", 1), `apiVersion is "apiserver.config.k8s.io/v2"`},
		{"unknown field", issuer(byName, "  x: 1\n"), `line 9: unknown field "jwt[0].x"`},
		{"unknown field below", strings.Replace(issuer(byName), "url: https://one", "url: https://one\n    URL: x", 1), `line 6: unknown field "jwt[0].issuer.URL"`},
		{"every unknown field", header + "x: 1\nz: 1\n", "line 4: unknown field \"z\""},
		{"key twice", header + "jwt: []\njwt: []\n", `"jwt" already set`},
		{"wrong type", header + "jwt: 1\n", "cannot unmarshal number"},
		{"too many", many(65), "jwt: Too many: 65: must have at most 64 items"},

		{"no URL", strings.Replace(issuer(byName), "url: https://one", "discoveryURL: https://x", 1), "line 4: jwt[0].issuer.url: Required value: URL is required"},
		{"http", strings.Replace(issuer(byName), "https://one", "http://one", 1), `line 5: jwt[0].issuer.url: Invalid value: "http://one": URL scheme must be https`},
		{"no host", strings.Replace(issuer(byName), "https://one", "https:///x", 1), "URL must contain a host"},
		{"user", strings.Replace(issuer(byName), "https://one", "https://u:secret@one", 1), `"https://u:xxxxx@one": URL must not contain a username or password`},
		{"query", strings.Replace(issuer(byName), "https://one", "https://one?x=y", 1), "URL must not contain a query"},
		{"empty query", strings.Replace(issuer(byName), "https://one", "https://one?", 1), "URL must not contain a query"},
		{"fragment", strings.Replace(issuer(byName), "https://one", "https://one#x", 1), "URL must not contain a fragment"},
		{"no such URL", strings.Replace(issuer(byName), "https://one", `"https://\x7f"`, 1), "invalid control character"},
		{"own issuer", strings.Replace(issuer(byName), "https://one", "https://cluster", 1), "URL must not overlap with disallowed issuers: [https://cluster]"},
		{"issuer twice", issuer(byName) + "- issuer: {url: https://one, audiences: [a]}\n" + byName, `line 9: jwt[1].issuer.url: Duplicate value: "https://one"`},
		{"discovery is issuer", strings.Replace(issuer(byName), "https://one", "https://one\n    discoveryURL: https://one/", 1), "discoveryURL must be different from URL"},
		{"discovery over http", strings.Replace(issuer(byName), "https://one", "https://one\n    discoveryURL: http://two", 1), `jwt[0].issuer.discoveryURL: Invalid value: "http://two": URL scheme must be https`},
		{"discovery twice", issuer("    discoveryURL: https://d\n", byName) + "- issuer: {url: https://two, audiences: [a], discoveryURL: https://d}\n" + byName, `jwt[1].issuer.discoveryURL: Duplicate value`},
		{"CA", issuer("    certificateAuthority: none\n", byName), `line 7: jwt[0].issuer.certificateAuthority: Invalid value: "<omitted>"`},
		{"no audience", strings.Replace(issuer(byName), "[a]", "[]", 1), "line 6: jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required"},
		{"empty audience", strings.Replace(issuer(byName), "[a]", "['']", 1), "jwt[0].issuer.audiences[0]: Required value: audience can't be empty"},
		{"audience twice", strings.Replace(issuer(byName), "[a]", "[a, a]\n    audienceMatchPolicy: MatchAny", 1), `jwt[0].issuer.audiences[1]: Duplicate value: "a"`},
		{"audiences without a policy", strings.Replace(issuer(byName), "[a]", "[a, b]", 1), "audienceMatchPolicy must be MatchAny for multiple audiences"},
		{"policy", strings.Replace(issuer(byName), "[a]", "[a]\n    audienceMatchPolicy: MatchAll", 1), "audienceMatchPolicy must be empty or MatchAny for single audience"},

		{"no username", issuer(), "jwt[0].claimMappings.username: Required value: claim or expression is required"},
		{"no prefix", issuer("  claimMappings:\n    username: {claim: sub}\n"), "line 8: jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set"},
		{"username twofold", issuer("  claimMappings:\n    username: {claim: sub, prefix: '', expression: claims.sub}\n"), "jwt[0].claimMappings.username: Invalid value: \"\": claim and expression can't both be set"},
		{"prefix of an expression", issuer("  claimMappings:\n    username: {expression: claims.sub, prefix: x}\n"), "prefix can't be set when expression is set"},
		{"username is a number", issuer(expr("1")), "must evaluate to string or dyn, not int"},
		{"username is optional", issuer(expr("claims.?sub")), "must evaluate to string"},
		{"username of the user", issuer(expr("user.username")), "undeclared reference to 'user'"},
		{"username is not CEL", issuer(expr("claims.")), "line 9: jwt[0].claimMappings.username.expression: Invalid value: \"claims.\": compilation failed"},
		{"email unsure", issuer(expr("claims.email")), "claims.email_verified must be used in"},
		{"email unsure by index", issuer(expr(`claims["email"]`)), "claims.email_verified must be used in"},
		{"email sure only if there", issuer(expr(`has(claims.email_verified) ? claims.email : ""`)), "claims.email_verified must be used in"},
		{"groups without a prefix", more("    groups: {claim: g}\n"), "jwt[0].claimMappings.groups.prefix: Required value"},
		{"groups twofold", more("    groups: {claim: g, prefix: '', expression: claims.g}\n"), "jwt[0].claimMappings.groups: Invalid value"},
		{"groups are numbers", more("    groups: {expression: '[1]'}\n"), "not list(int)"},
		{"groups are nothing with a prefix", more("    groups: {prefix: x}\n"), "jwt[0].claimMappings.groups: Required value"},
		{"uid twofold", more("    uid: {claim: g, expression: claims.g}\n"), "jwt[0].claimMappings.uid: Invalid value"},
		{"uid is a number", more("    uid: {expression: '1'}\n"), "jwt[0].claimMappings.uid.expression: Invalid value"},

		{"extra without a key", extra("", "claims.x"), "jwt[0].claimMappings.extra[0].key: Required value"},
		{"extra without a domain", extra("x", "claims.x"), "must be a domain-prefixed path"},
		{"extra in capitals", extra("example.org/X", "claims.x"), "must be lowercase"},
		{"extra of k8s.io", extra("k8s.io/x", "claims.x"), "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"},
		{"extra below kubernetes.io", extra("a.kubernetes.io/x", "claims.x"), "are reserved for Kubernetes use"},
		{"extra twice", extra("example.org/x", "claims.x") + "    - {key: example.org/x, valueExpression: claims.y}\n", `line 12: jwt[0].claimMappings.extra[1].key: Duplicate value`},
		{"extra without a value", extra("example.org/x", ""), "valueExpression is required"},
		{"extra is a number", extra("example.org/x", "1"), "jwt[0].claimMappings.extra[0].valueExpression: Invalid value"},

		{"empty rule", rules("  - message: x\n"), "line 10: jwt[0].claimValidationRules[0]: Required value: claim or expression is required"},
		{"rule twofold", rules("  - {claim: x, expression: claims.x}\n"), "claim and expression can't both be set"},
		{"rule with a message", rules("  - {claim: x, requiredValue: v, message: z}\n"), "message can't be set when claim is set"},
		{"rule with a value", rules("  - {expression: claims.x == '', requiredValue: v}\n"), "requiredValue can't be set when expression is set"},
		{"claim twice", rules("  - {claim: x, requiredValue: v}\n  - {claim: x, requiredValue: w}\n"), "jwt[0].claimValidationRules[1].claim: Duplicate value"},
		{"rule twice", rules("  - {expression: 'true'}\n  - {expression: 'true'}\n"), "jwt[0].claimValidationRules[1].expression: Duplicate value"},
		{"rule is not a boolean", rules("  - {expression: claims.x}\n"), "must evaluate to bool, not dyn"},
		{"user rule empty", user("  - message: x\n"), "jwt[0].userValidationRules[0].expression: Required value"},
		{"user rule twice", user("  - {expression: 'true'}\n  - {expression: 'true'}\n"), "jwt[0].userValidationRules[1].expression: Duplicate value"},
		{"user rule is not a boolean", user("  - {expression: user.username}\n"), "must evaluate to bool, not string"},
		{"user rule on claims", user("  - {expression: claims.x == 1}\n"), "undeclared reference to 'claims'"},
		{"user rule on no field", user("  - {expression: user.name == ''}\n"), "undefined field 'name'"},

		{"conditions of none", header + "anonymous: {enabled: false, conditions: [{path: /x}]}\n", "enabled should be set to true when conditions are defined"},
		{"condition without a path", header + "anonymous: {enabled: true, conditions: [{}]}\n", "anonymous.conditions[0].path: Required value"},
		{"condition is not a path", header + "anonymous: {enabled: true, conditions: [{path: x}]}\n", "must begin with /"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := authnconfig.Parse([]byte(tt.text), []string{"https://cluster"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %s\nof\n%s", err, tt.want, tt.text)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Error("the error contains a password")
			}
		})
	}
}

// TestClaimAndExpressionIsOneError checks that a claim together with an expression gives a single
// error, for any prefix.
func TestClaimAndExpressionIsOneError(t *testing.T) {
	for _, prefix := range []string{"", ", prefix: x"} {
		_, err := authnconfig.Parse([]byte(issuer("  claimMappings:\n    username: {claim: sub, expression: claims.sub"+prefix+"}\n")), nil)
		if err == nil || strings.Contains(err.Error(), "prefix") {
			t.Errorf("with %q: %v", prefix, err)
		}
	}
}

// TestPrefixWithoutClaimIsOneError checks that a prefix without a claim gives a single error.
func TestPrefixWithoutClaimIsOneError(t *testing.T) {
	for _, prefix := range []string{"", "x"} {
		_, err := authnconfig.Parse([]byte(issuer("  claimMappings:\n    username: {prefix: '"+prefix+"'}\n")), nil)
		if err == nil || strings.Count(err.Error(), "claim or expression is required") != 1 {
			t.Errorf("with %q: %v", prefix, err)
		}
	}
}

func TestAnonymousAllows(t *testing.T) {
	tests := []struct {
		a    authnconfig.Anonymous
		path string
		want bool
	}{
		{authnconfig.Anonymous{}, "/livez", false},
		{authnconfig.Anonymous{Enabled: true}, "/api", true},
		{authnconfig.Anonymous{Enabled: true, Conditions: []authnconfig.AnonymousCondition{{Path: "/livez"}}}, "/livez", true},
		{authnconfig.Anonymous{Enabled: true, Conditions: []authnconfig.AnonymousCondition{{Path: "/livez"}}}, "/livez/", false},
		{authnconfig.Anonymous{Enabled: true, Conditions: []authnconfig.AnonymousCondition{{Path: "/livez"}}}, "/api", false},
		{authnconfig.Anonymous{Conditions: []authnconfig.AnonymousCondition{{Path: "/livez"}}}, "/livez", false},
	}
	for _, tt := range tests {
		if got := tt.a.Allows(tt.path); got != tt.want {
			t.Errorf("%+v allows %s: %v", tt.a, tt.path, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	full, err := os.ReadFile(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte(header))
	f.Add([]byte(issuer(byName)))
	f.Add([]byte(header + "jwt: &a [*a]\n"))
	f.Add([]byte(header + "? [a]\n: {b: c}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := authnconfig.Parse(data, nil)
		if (c == nil) == (err == nil) {
			t.Errorf("got %v, %v", c, err)
		}
		if c != nil && c.Kind != authnconfig.Kind {
			t.Errorf("kind %q", c.Kind)
		}
	})
}
