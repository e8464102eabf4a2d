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

// issuer returns a configuration with one issuer, followed by the lines of more.
func issuer(more ...string) string {
	return header + "jwt:\n- issuer:\n    url: https://one\n    audiences: [a]\n" + strings.Join(more, "")
}

const byName = "  claimMappings:\n    username: {claim: sub, prefix: ''}\n"

// TestParseAcceptsValidConfigurations checks files with all fields, few fields, both versions and
// both formats.
func TestParseAcceptsValidConfigurations(t *testing.T) {
	full, err := os.ReadFile(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"every field":                          string(full),
		"v1alpha1":                             strings.Replace(issuer(byName), "v1beta1", "v1alpha1", 1),
		"only version and kind":                header,
		"no issuer":                            header + "jwt: []\n",
		"anonymous":                            header + "anonymous: {enabled: true}\n",
		"conditions":                           header + "anonymous: {enabled: true, conditions: [{path: /livez}]}\n",
		"JSON":                                 `{"apiVersion":"apiserver.config.k8s.io/v1beta1","kind":"AuthenticationConfiguration","jwt":[]}`,
		"email with a check of email_verified": issuer("  claimMappings:\n    username:\n      expression: claims.email\n  claimValidationRules:\n  - expression: claims.?email_verified.orValue(true) == true\n"),
		"email claim":                          issuer("  claimMappings:\n    username: {claim: email, prefix: ''}\n"),
		"claim emails":                         issuer("  claimMappings:\n    username:\n      expression: claims.emails[0]\n"),
		"MatchAny with one audience":           strings.Replace(issuer(byName), "[a]", "[a]\n    audienceMatchPolicy: MatchAny", 1),
		"no groups":                            issuer(byName + "    groups: {prefix: ''}\n"),
		"64 issuers":                           manyIssuers(64),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := authnconfig.Parse([]byte(text), []string{"https://cluster"}); err != nil {
				t.Error(err)
			}
		})
	}
}

func manyIssuers(count int) string {
	var text strings.Builder
	text.WriteString(header + "jwt:\n")
	for i := range count {
		fmt.Fprintf(&text, "- issuer: {url: 'https://%d', audiences: [a]}\n%s", i, byName)
	}
	return text.String()
}

// TestParseRejectsInvalidConfigurations rejects invalid configurations with the path of the field,
// and without secrets.
func TestParseRejectsInvalidConfigurations(t *testing.T) {
	expr := func(e string) string { return "  claimMappings:\n    username:\n      expression: '" + e + "'\n" }
	more := func(lines string) string { return issuer(byName + lines) }
	rules := func(lines string) string { return more("  claimValidationRules:\n" + lines) }
	user := func(lines string) string { return more("  userValidationRules:\n" + lines) }
	extra := func(key, e string) string {
		return more("    extra:\n    - key: '" + key + "'\n      valueExpression: '" + e + "'\n")
	}
	tests := []struct{ name, text, want string }{
		{name: "empty", text: "", want: "the file is empty"},
		{name: "comment", text: "# nothing\n", want: "the file is empty"},
		{name: "null", text: "null\n", want: `kind is ""`},
		{name: "list", text: "- a\n", want: "cannot unmarshal array"},
		{name: "not YAML", text: "a: [\n", want: "did not find expected"},
		{name: "two documents", text: header + "---\n" + header, want: "more than one document"},
		{name: "kind", text: "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: X\n", want: `kind is "X"`},
		{name: "version", text: strings.Replace(header, "v1beta1", "v2", 1), want: `apiVersion is "apiserver.config.k8s.io/v2"`},
		{name: "unknown field", text: issuer(byName, "  x: 1\n"), want: `line 9: unknown field "jwt[0].x"`},
		{
			name: "unknown field below",
			text: strings.Replace(issuer(byName), "url: https://one", "url: https://one\n    URL: x", 1),
			want: `line 6: unknown field "jwt[0].issuer.URL"`,
		},
		{name: "every unknown field", text: header + "x: 1\nz: 1\n", want: "line 4: unknown field \"z\""},
		{name: "key twice", text: header + "jwt: []\njwt: []\n", want: `"jwt" already set`},
		{name: "wrong type", text: header + "jwt: 1\n", want: "cannot unmarshal number"},
		{name: "too many", text: manyIssuers(65), want: "jwt: Too many: 65: must have at most 64 items"},

		{
			name: "no URL",
			text: strings.Replace(issuer(byName), "url: https://one", "discoveryURL: https://x", 1),
			want: "line 4: jwt[0].issuer.url: Required value: URL is required",
		},
		{
			name: "http",
			text: strings.Replace(issuer(byName), "https://one", "http://one", 1),
			want: `line 5: jwt[0].issuer.url: Invalid value: "http://one": URL scheme must be https`,
		},
		{name: "no host", text: strings.Replace(issuer(byName), "https://one", "https:///x", 1), want: "URL must contain a host"},
		{
			name: "user",
			text: strings.Replace(issuer(byName), "https://one", "https://u:secret@one", 1),
			want: `"https://u:xxxxx@one": URL must not contain a username or password`,
		},
		{
			name: "query",
			text: strings.Replace(issuer(byName), "https://one", "https://one?x=y", 1),
			want: "URL must not contain a query",
		},
		{
			name: "empty query",
			text: strings.Replace(issuer(byName), "https://one", "https://one?", 1),
			want: "URL must not contain a query",
		},
		{
			name: "fragment",
			text: strings.Replace(issuer(byName), "https://one", "https://one#x", 1),
			want: "URL must not contain a fragment",
		},
		{
			name: "no such URL",
			text: strings.Replace(issuer(byName), "https://one", `"https://\x7f"`, 1),
			want: `Invalid value: "https://\x7f": parse "https://\x7f": net/url: invalid control character in URL`,
		},
		{
			name: "own issuer",
			text: strings.Replace(issuer(byName), "https://one", "https://cluster", 1),
			want: "URL must not overlap with disallowed issuers: [https://cluster]",
		},
		{
			name: "issuer twice",
			text: issuer(byName) + "- issuer: {url: https://one, audiences: [a]}\n" + byName,
			want: `line 9: jwt[1].issuer.url: Duplicate value: "https://one"`,
		},
		{
			name: "discovery is issuer",
			text: strings.Replace(issuer(byName), "https://one", "https://one\n    discoveryURL: https://one/", 1),
			want: "discoveryURL must be different from URL",
		},
		{
			name: "discovery over http",
			text: strings.Replace(issuer(byName), "https://one", "https://one\n    discoveryURL: http://two", 1),
			want: `jwt[0].issuer.discoveryURL: Invalid value: "http://two": URL scheme must be https`,
		},
		{
			name: "discovery twice",
			text: issuer("    discoveryURL: https://d\n",
				byName) + "- issuer: {url: https://two, audiences: [a], discoveryURL: https://d}\n" + byName,
			want: `jwt[1].issuer.discoveryURL: Duplicate value`,
		},
		{
			name: "CA",
			text: issuer("    certificateAuthority: none\n", byName),
			want: `line 7: jwt[0].issuer.certificateAuthority: Invalid value: "<omitted>"`,
		},
		{
			name: "no audience",
			text: strings.Replace(issuer(byName), "[a]", "[]", 1),
			want: "line 6: jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
		},
		{
			name: "empty audience",
			text: strings.Replace(issuer(byName), "[a]", "['']", 1),
			want: "jwt[0].issuer.audiences[0]: Required value: audience can't be empty",
		},
		{
			name: "audience twice",
			text: strings.Replace(issuer(byName), "[a]", "[a, a]\n    audienceMatchPolicy: MatchAny", 1),
			want: `jwt[0].issuer.audiences[1]: Duplicate value: "a"`,
		},
		{
			name: "audiences without a policy",
			text: strings.Replace(issuer(byName), "[a]", "[a, b]", 1),
			want: "audienceMatchPolicy must be MatchAny for multiple audiences",
		},
		{
			name: "policy",
			text: strings.Replace(issuer(byName), "[a]", "[a]\n    audienceMatchPolicy: MatchAll", 1),
			want: "audienceMatchPolicy must be empty or MatchAny for single audience",
		},

		{
			name: "no username",
			text: issuer(),
			want: "jwt[0].claimMappings.username: Required value: claim or expression is required",
		},
		{
			name: "no prefix",
			text: issuer("  claimMappings:\n    username: {claim: sub}\n"),
			want: "line 8: jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set",
		},
		{
			name: "username twofold",
			text: issuer("  claimMappings:\n    username: {claim: sub, prefix: '', expression: claims.sub}\n"),
			want: "jwt[0].claimMappings.username: Invalid value: \"\": claim and expression can't both be set",
		},
		{
			name: "prefix of an expression",
			text: issuer("  claimMappings:\n    username: {expression: claims.sub, prefix: x}\n"),
			want: "prefix can't be set when expression is set",
		},
		{name: "username is a number", text: issuer(expr("1")), want: "must evaluate to string or dyn, not int"},
		{name: "username is optional", text: issuer(expr("claims.?sub")), want: "must evaluate to string"},
		{name: "username of the user", text: issuer(expr("user.username")), want: "undeclared reference to 'user'"},
		{
			name: "username is not CEL",
			text: issuer(expr("claims.")),
			want: "line 9: jwt[0].claimMappings.username.expression: Invalid value: \"claims.\": compilation failed",
		},
		{name: "email unsure", text: issuer(expr("claims.email")), want: "claims.email_verified must be used in"},
		{name: "email unsure by index", text: issuer(expr(`claims["email"]`)), want: "claims.email_verified must be used in"},
		{
			name: "email sure only if there",
			text: issuer(expr(`has(claims.email_verified) ? claims.email : ""`)),
			want: "claims.email_verified must be used in",
		},
		{
			name: "groups without a prefix",
			text: more("    groups: {claim: g}\n"),
			want: "jwt[0].claimMappings.groups.prefix: Required value",
		},
		{
			name: "groups twofold",
			text: more("    groups: {claim: g, prefix: '', expression: claims.g}\n"),
			want: "jwt[0].claimMappings.groups: Invalid value",
		},
		{name: "groups are numbers", text: more("    groups: {expression: '[1]'}\n"), want: "not list(int)"},
		{
			name: "groups are nothing with a prefix",
			text: more("    groups: {prefix: x}\n"),
			want: "jwt[0].claimMappings.groups: Required value",
		},
		{
			name: "uid twofold",
			text: more("    uid: {claim: g, expression: claims.g}\n"),
			want: "jwt[0].claimMappings.uid: Invalid value",
		},
		{
			name: "uid is a number",
			text: more("    uid: {expression: '1'}\n"),
			want: "jwt[0].claimMappings.uid.expression: Invalid value",
		},

		{name: "extra without a key", text: extra("", "claims.x"), want: "jwt[0].claimMappings.extra[0].key: Required value"},
		{name: "extra without a domain", text: extra("x", "claims.x"), want: "must be a domain-prefixed path"},
		{name: "extra in capitals", text: extra("example.org/X", "claims.x"), want: "must be lowercase"},
		{
			name: "extra of k8s.io",
			text: extra("k8s.io/x", "claims.x"),
			want: "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use",
		},
		{
			name: "extra below kubernetes.io",
			text: extra("a.kubernetes.io/x", "claims.x"),
			want: "are reserved for Kubernetes use",
		},
		{
			name: "extra twice",
			text: extra("example.org/x", "claims.x") + "    - {key: example.org/x, valueExpression: claims.y}\n",
			want: `line 12: jwt[0].claimMappings.extra[1].key: Duplicate value`,
		},
		{name: "extra without a value", text: extra("example.org/x", ""), want: "valueExpression is required"},
		{
			name: "extra is a number",
			text: extra("example.org/x", "1"),
			want: "jwt[0].claimMappings.extra[0].valueExpression: Invalid value",
		},

		{
			name: "empty rule",
			text: rules("  - message: x\n"),
			want: "line 10: jwt[0].claimValidationRules[0]: Required value: claim or expression is required",
		},
		{
			name: "rule twofold",
			text: rules("  - {claim: x, expression: claims.x}\n"),
			want: "claim and expression can't both be set",
		},
		{
			name: "rule with a message",
			text: rules("  - {claim: x, requiredValue: v, message: z}\n"),
			want: "message can't be set when claim is set",
		},
		{
			name: "rule with a value",
			text: rules("  - {expression: claims.x == '', requiredValue: v}\n"),
			want: "requiredValue can't be set when expression is set",
		},
		{
			name: "claim twice",
			text: rules("  - {claim: x, requiredValue: v}\n  - {claim: x, requiredValue: w}\n"),
			want: "jwt[0].claimValidationRules[1].claim: Duplicate value",
		},
		{
			name: "rule twice",
			text: rules("  - {expression: 'true'}\n  - {expression: 'true'}\n"),
			want: "jwt[0].claimValidationRules[1].expression: Duplicate value",
		},
		{name: "rule is not a boolean", text: rules("  - {expression: claims.x}\n"), want: "must evaluate to bool, not dyn"},
		{
			name: "user rule empty",
			text: user("  - message: x\n"),
			want: "jwt[0].userValidationRules[0].expression: Required value",
		},
		{
			name: "user rule twice",
			text: user("  - {expression: 'true'}\n  - {expression: 'true'}\n"),
			want: "jwt[0].userValidationRules[1].expression: Duplicate value",
		},
		{
			name: "user rule is not a boolean",
			text: user("  - {expression: user.username}\n"),
			want: "must evaluate to bool, not string",
		},
		{name: "user rule on claims", text: user("  - {expression: claims.x == 1}\n"), want: "undeclared reference to 'claims'"},
		{name: "user rule on no field", text: user("  - {expression: user.name == ''}\n"), want: "undefined field 'name'"},

		{
			name: "conditions of none",
			text: header + "anonymous: {enabled: false, conditions: [{path: /x}]}\n",
			want: "enabled should be set to true when conditions are defined",
		},
		{
			name: "condition without a path",
			text: header + "anonymous: {enabled: true, conditions: [{}]}\n",
			want: "anonymous.conditions[0].path: Required value",
		},
		{
			name: "condition is not a path",
			text: header + "anonymous: {enabled: true, conditions: [{path: x}]}\n",
			want: "must begin with /",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := authnconfig.Parse([]byte(tt.text), []string{"https://cluster"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %s\nof\n%s", err, tt.want, tt.text)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("got error %q that contains the password, want none of it", err)
			}
		})
	}
}

// TestErrorsOmitPasswordsOfURLs checks that no error contains the password of a URL, whatever else is
// wrong with the URL.
func TestErrorsOmitPasswordsOfURLs(t *testing.T) {
	const password = "s3cret"
	for _, url := range []string{
		"https://u:s3cret@one",
		"https://:s3cret@one",
		"http://u:s3cret@one",
		"https://u:s3cret@",
		"https://u:s3cret@one?a=b",
		"https://u:s3cret@one?",
		"https://u:s3cret@one#a",
		"https://u:s3cret@one:port",
		"https://u:s3cret@one/%zz",
		"https://u:s3cret%zz@one",
		"https://u:s3cret @one",
		"https://u:s3cret/@one",
		"https://u:s3cret?@one",
		"https://u:s3cret#@one",
		"https:u:s3cret@one",
		"https:///u:s3cret@one",
		"//u:s3cret@one",
		"u:s3cret@one",
		"u:s3cret@one:80\x7f",
	} {
		jwt := fmt.Sprintf("- issuer:\n    url: %[1]q\n    discoveryURL: %[1]q\n    audiences: [a]\n", url) + byName
		// Each URL is invalid, a duplicate, equal to the other URL and disallowed.
		_, err := authnconfig.Parse([]byte(header+"jwt:\n"+jwt+jwt), []string{url})
		if err == nil {
			t.Errorf("%s: got no error, want one", url)
			continue
		}
		for _, want := range []string{
			"jwt[1].issuer.url: Duplicate value", "jwt[1].issuer.discoveryURL: Duplicate value",
			"URL must not overlap with disallowed issuers", "discoveryURL must be different from URL",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %v, want it to contain %q", url, err, want)
			}
		}
		if strings.Contains(err.Error(), password) {
			t.Errorf("%s: got error %q, want it without the password", url, err)
		}
	}
}

// TestClaimAndExpressionIsOneError checks that a claim together with an expression gives a single
// error, for any prefix.
func TestClaimAndExpressionIsOneError(t *testing.T) {
	for _, prefix := range []string{"", ", prefix: x"} {
		_, err := authnconfig.Parse([]byte(issuer("  claimMappings:\n    username: {claim: sub, expression: claims.sub"+prefix+"}\n")), nil)
		if err == nil || strings.Contains(err.Error(), "prefix") {
			t.Errorf("claim and expression%s: got error %v, want one that does not mention the prefix", prefix, err)
		}
	}
}

// TestPrefixWithoutClaimIsOneError checks that a prefix without a claim gives a single error.
func TestPrefixWithoutClaimIsOneError(t *testing.T) {
	for _, prefix := range []string{"", "x"} {
		_, err := authnconfig.Parse([]byte(issuer("  claimMappings:\n    username: {prefix: '"+prefix+"'}\n")), nil)
		if err == nil || strings.Count(err.Error(), "claim or expression is required") != 1 {
			t.Errorf("prefix %q: got error %v, want \"claim or expression is required\" once", prefix, err)
		}
	}
}

// TestAnonymousAllowsOnlyConfiguredPaths checks which paths allow anonymous requests.
func TestAnonymousAllowsOnlyConfiguredPaths(t *testing.T) {
	tests := []struct {
		setting authnconfig.Anonymous
		path    string
		want    bool
	}{
		{setting: authnconfig.Anonymous{}, path: "/livez", want: false},
		{setting: authnconfig.Anonymous{Enabled: true}, path: "/api", want: true},
		{
			setting: authnconfig.Anonymous{Enabled: true, Conditions: []authnconfig.AnonymousCondition{{Path: "/livez"}}},
			path:    "/livez",
			want:    true,
		},
		{
			setting: authnconfig.Anonymous{Enabled: true, Conditions: []authnconfig.AnonymousCondition{{Path: "/livez"}}},
			path:    "/livez/",
			want:    false,
		},
		{
			setting: authnconfig.Anonymous{Enabled: true, Conditions: []authnconfig.AnonymousCondition{{Path: "/livez"}}},
			path:    "/api",
			want:    false,
		},
		{setting: authnconfig.Anonymous{Conditions: []authnconfig.AnonymousCondition{{Path: "/livez"}}}, path: "/livez", want: false},
	}
	for _, tt := range tests {
		if got := tt.setting.Allows(tt.path); got != tt.want {
			t.Errorf("%+v allows %s: %v, want %v", tt.setting, tt.path, got, tt.want)
		}
	}
}

// FuzzParse checks that Parse returns either a configuration or an error.
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
		configuration, err := authnconfig.Parse(data, nil)
		if (configuration == nil) == (err == nil) {
			t.Errorf("got %v, %v, want either a configuration or an error", configuration, err)
		}
		if configuration != nil && configuration.Kind != authnconfig.Kind {
			t.Errorf("got kind %q, want %q", configuration.Kind, authnconfig.Kind)
		}
	})
}
