package authnconfig_test

import (
	"reflect"
	"strings"
	"testing"

	"binnacle/libs/authenticator"
	"binnacle/libs/oidctoken/oidctest"
)

// TestIssuerRulesMapClaimsToUsers maps claims to users, and rejects tokens, by the rules of an
// issuer.
func TestIssuerRulesMapClaimsToUsers(t *testing.T) {
	issuer := oidctest.New(t)
	const sub = "  claimMappings:\n    username: {expression: 'claims.sub'}\n"
	tests := []struct {
		name   string
		config string
		claims map[string]any // of the token, in addition to the standard claims of user ada
		want   authenticator.User
		err    string // part of the error; "" for none
	}{
		{
			name:   "expression",
			config: "  claimMappings:\n    username: {expression: '\"x:\" + claims.sub'}\n",
			want:   authenticator.User{Name: "x:ada"},
		},
		{
			name: "username, groups, uid and extra keys",
			config: "  claimMappings:\n    username: {claim: sub, prefix: 'p:'}\n    groups: {expression: 'claims.roles.map(r, \"g:\" + r)'}\n    uid: {expression: 'string(claims.num)'}\n" +
				"    extra:\n    - {key: example.org/one, valueExpression: claims.one}\n    - {key: example.org/many, valueExpression: claims.roles}\n    - {key: example.org/none, valueExpression: \"claims.?none.orValue('')\"}\n    - {key: example.org/null, valueExpression: claims.nil}\n",
			claims: map[string]any{"roles": []string{"a", "b"}, "num": 7, "one": "x", "nil": []string{}},
			want: authenticator.User{
				Name:   "p:ada",
				UID:    "7",
				Groups: []string{"g:a", "g:b"},
				Extra:  map[string][]string{"example.org/one": {"x"}, "example.org/many": {"a", "b"}},
			},
		},
		{
			name:   "claims without expressions",
			config: "  claimMappings:\n    username: {claim: sub, prefix: ''}\n    groups: {claim: g, prefix: 'g:'}\n    uid: {claim: id}\n",
			claims: map[string]any{"g": "one", "id": "u"},
			want:   authenticator.User{Name: "ada", UID: "u", Groups: []string{"g:one"}},
		},
		{
			name:   "token with an id",
			config: "  claimMappings:\n    username: {claim: sub, prefix: ''}\n    extra:\n    - {key: example.org/one, valueExpression: claims.sub}\n",
			claims: map[string]any{"jti": "t-1"},
			want: authenticator.User{
				Name:  "ada",
				Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=t-1"}, "example.org/one": {"ada"}},
			},
		},
		{
			name:   "one group",
			config: sub + "    groups: {expression: claims.g}\n",
			claims: map[string]any{"g": "x"},
			want:   authenticator.User{Name: "ada", Groups: []string{"x"}},
		},
		{
			name:   "no group",
			config: sub + "    groups: {expression: \"claims.?g.orValue('')\"}\n",
			want:   authenticator.User{Name: "ada"},
		},
		{
			name:   "nested claim",
			config: "  claimMappings:\n    username: {expression: claims.a.b}\n",
			claims: map[string]any{"a": map[string]any{"b": "x"}},
			want:   authenticator.User{Name: "x"},
		},
		{
			name:   "rule passes",
			config: sub + "  claimValidationRules:\n  - {claim: hd, requiredValue: x}\n  - {expression: claims.n < 5}\n",
			claims: map[string]any{"hd": "x", "n": 4},
			want:   authenticator.User{Name: "ada"},
		},
		{
			name:   "rule with a message passes",
			config: sub + "  claimValidationRules:\n  - {expression: claims.n < 5, message: too much}\n",
			claims: map[string]any{"n": 4},
			want:   authenticator.User{Name: "ada"},
		},
		{
			name:   "username claim is empty",
			config: "  claimMappings:\n    username: {claim: x, prefix: ''}\n",
			claims: map[string]any{"x": ""},
			want:   authenticator.User{},
		},
		{
			name:   "username is missing",
			config: "  claimMappings:\n    username: {expression: 'claims.x'}\n",
			err:    "username: evaluation failed: no such key: x",
		},
		{
			name:   "groups are missing",
			config: sub + "    groups: {expression: claims.g}\n",
			err:    "groups: evaluation failed: no such key: g",
		},
		{
			name:   "user rule passes",
			config: sub + "  userValidationRules:\n  - {expression: 'user.username == \"ada\" && user.groups.size() == 0 && user.uid == \"\" && !(\"x\" in user.extra)'}\n",
			want:   authenticator.User{Name: "ada"},
		},

		{
			name:   "required claim has another value",
			config: sub + "  claimValidationRules:\n  - {claim: hd, requiredValue: x}\n",
			claims: map[string]any{"hd": "y"},
			err:    `required claim "hd" has another value than "x"`,
		},
		{
			name:   "rule with a message fails",
			config: sub + "  claimValidationRules:\n  - {expression: claims.n < 5, message: too much}\n",
			claims: map[string]any{"n": 5},
			err:    "claim validation rule: too much",
		},
		{
			name:   "rule without a message fails",
			config: sub + "  claimValidationRules:\n  - {expression: claims.n < 5}\n",
			claims: map[string]any{"n": 5},
			err:    "expression 'claims.n < 5' is false",
		},
		{
			name:   "rule on a missing claim",
			config: sub + "  claimValidationRules:\n  - {expression: claims.n < 5}\n",
			err:    "no such key: n",
		},
		{
			name:   "username is empty",
			config: "  claimMappings:\n    username: {expression: 'claims.x'}\n",
			claims: map[string]any{"x": ""},
			err:    "username: expression yields an empty string",
		},
		{
			name:   "username is a number",
			config: "  claimMappings:\n    username: {expression: 'claims.x'}\n",
			claims: map[string]any{"x": 1},
			err:    "expression yields int, not a string",
		},
		{
			name:   "username claim is missing",
			config: "  claimMappings:\n    username: {claim: x, prefix: ''}\n",
			err:    `username: claim "x" is not present`,
		},
		{
			name:   "email is not verified",
			config: "  claimMappings:\n    username: {claim: email, prefix: ''}\n",
			claims: map[string]any{"email": "x", "email_verified": false},
			err:    "email is not verified",
		},
		{
			name:   "groups are a map",
			config: sub + "    groups: {expression: claims.g}\n",
			claims: map[string]any{"g": map[string]any{}},
			err:    "groups: expression yields map",
		},
		{
			name:   "groups have a number",
			config: sub + "    groups: {expression: claims.g}\n",
			claims: map[string]any{"g": []any{"a", 1}},
			err:    "groups: expression yields a list with int in it",
		},
		{
			name:   "groups claim is a number",
			config: sub + "    groups: {claim: g, prefix: ''}\n",
			claims: map[string]any{"g": 1},
			err:    `claim "g" is neither`,
		},
		{
			name:   "uid is a list",
			config: sub + "    uid: {expression: claims.g}\n",
			claims: map[string]any{"g": []string{}},
			err:    "uid: expression yields list",
		},
		{name: "uid claim is missing", config: sub + "    uid: {claim: g}\n", err: `uid: claim "g" is not present`},
		{
			name:   "extra is a number",
			config: sub + "    extra:\n    - {key: example.org/x, valueExpression: claims.g}\n",
			claims: map[string]any{"g": 1},
			err:    `extra "example.org/x": expression yields int`,
		},
		{
			name:   "user rule",
			config: sub + "  userValidationRules:\n  - {expression: '!user.username.startsWith(\"a\")', message: no a}\n",
			err:    "user validation rule: no a",
		},
		{
			name:   "rules that exceed the budget together",
			config: sub + "  claimValidationRules:\n  - {expression: '!claims.text.contains(claims.part)'}\n  - {expression: '!claims.text.contains(claims.part + \"b\")'}\n  - {expression: '!claims.text.contains(claims.part + \"c\")'}\n",
			claims: map[string]any{"text": strings.Repeat("a", 25_000), "part": strings.Repeat("b", 3_500)},
			err:    "cost budget exceeded",
		},
		{name: "rule that exceeds the limit of an expression", config: sub + "  claimValidationRules:\n  - {expression: '!claims.text.contains(claims.part)'}\n",
			claims: map[string]any{"text": strings.Repeat("a", 25_000), "part": strings.Repeat("b", 12_000)},
			err:    "cost limit exceeded",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := startAuthenticator(t, header+"jwt:\n"+issuerConfig(issuer, tt.config))
			w.awaitLog(t, logReachable)
			resp, ok, err := w.AuthenticateToken(t.Context(), issuer.Token(tt.claims), nil)
			if tt.err != "" {
				if ok || err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, %v, want %q", resp, err, tt.err)
				}
				return
			}
			if err != nil || !ok {
				t.Fatalf("got %v, %v, want an authenticated user", ok, err)
			}
			if !reflect.DeepEqual(resp.User, tt.want) {
				t.Errorf("got %+v, want %v", resp.User, tt.want)
			}
		})
	}
}
