package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/deploy/certs"
	"binnacle/libs/oidctoken/oidctest"
	"binnacle/libs/satoken"
)

// TestTokenOfEachKindIdentifiesItsUser checks the user for a token of each kind, and that other tokens are
// rejected.
func TestTokenOfEachKindIdentifiesItsUser(t *testing.T) {
	fixture, provider := newFixture(t), oidctest.New(t)
	fixture.api.Put("serviceaccounts", serviceAccount("1"))
	fixture.api.Put("secrets", bootstrapSecret("abcdef", "0123456789abcdef"))
	fixture.run(fixture.optionsWithAllTokens(provider))
	token := provider.Token(nil)
	fixture.eventually(func() bool { return fixture.review(token) == "oidc:ada" })
	account := fixture.signed(issuer, satoken.Binding{}, issuer)
	tests := []struct {
		name, token string
		audiences   []string
		want        string
	}{
		{name: "static", token: "static-token", audiences: nil, want: "carol"},
		{
			name:      "static, of a suite's service",
			token:     "of-the-suite",
			audiences: nil,
			want:      `user "system:binnacle:apiserver": names that begin with system:binnacle: and the group system:binnacle are reserved for the suite's own services`,
		},
		{name: "static, for the API server", token: "static-token", audiences: []string{issuer}, want: "carol"},
		{name: "static, for another audience", token: "static-token", audiences: []string{"vault"}, want: "unknown"},
		{name: "bootstrap", token: "abcdef.0123456789abcdef", audiences: nil, want: "system:bootstrap:abcdef"},
		{name: "bootstrap, for another audience", token: "abcdef.0123456789abcdef", audiences: []string{"vault"}, want: "unknown"},
		{name: "bootstrap, malformed", token: "abcdef.0123456789abcdeX", audiences: nil, want: "unknown"},
		{
			name:      "bootstrap, wrong secret",
			token:     "abcdef.0123456789abcdee",
			audiences: nil,
			want:      "bootstrap token: the secret is wrong",
		},
		{name: "service account", token: account, audiences: nil, want: "system:serviceaccount:default:robot"},
		{
			name:      "service account, for another audience",
			token:     account,
			audiences: []string{"vault"},
			want:      `token audiences ["` + issuer + `"] is invalid for the target audiences ["vault"]`,
		},
		{
			name:      "service account of another audience, for that audience",
			token:     fixture.signed(issuer, satoken.Binding{}, "vault"),
			audiences: []string{"vault"},
			want:      "system:serviceaccount:default:robot",
		},
		{
			name:      "service account of another issuer",
			token:     fixture.signed("https://other", satoken.Binding{}, issuer),
			audiences: nil,
			want:      "unknown",
		},
		{name: "OIDC", token: token, audiences: nil, want: "oidc:ada"},
		{name: "OIDC, for the API server", token: token, audiences: []string{issuer}, want: "oidc:ada"},
		{name: "OIDC, for another audience", token: token, audiences: []string{"vault"}, want: "unknown"},
		{
			name:      "OIDC expired",
			token:     provider.Token(map[string]any{"exp": 1}),
			audiences: nil,
			want:      "oidc: verify token: oidc: token is expired (Token Expiry: 1970-01-01 00:00:01 +0000 UTC)",
		},
		{name: "unknown", token: "not-a-token", audiences: nil, want: "unknown"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := fixture.review(test.token, test.audiences...); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if strings.Contains(fixture.logs.String(), test.token) && test.token != "not-a-token" {
				t.Errorf("log contains the token %q, want no token in it", test.token)
			}
		})
	}
	_, metrics := fixture.get("/metrics")
	for _, name := range []string{"serviceaccount_valid_tokens_total 2",
		`authn_webhook_review_duration_seconds_count{result="authenticated"}`} {
		if !strings.Contains(metrics, name) {
			t.Errorf("no metric %s, want it in the metrics", name)
		}
	}
}

// TestRevocationIsImmediate checks that a token is rejected once its object is deleted, although the
// watches have not delivered the deletion.
func TestRevocationIsImmediate(t *testing.T) {
	fixture, provider := newFixture(t), oidctest.New(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "pod-1"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-1"}}
	held := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "secret", UID: "secret-1"},
		Type:       corev1.SecretTypeOpaque,
	}
	fixture.api.Put("serviceaccounts", serviceAccount("1"))
	fixture.api.Put("pods", pod)
	fixture.api.Put("nodes", node)
	fixture.api.Put("secrets", held)
	fixture.api.Put("secrets", bootstrapSecret("abcdef", "0123456789abcdef"))
	fixture.run(fixture.optionsWithAllTokens(provider))
	const robot = "system:serviceaccount:default:robot"
	steps := []struct {
		name, token, user string
		remove            func()
		err               string
	}{
		{name: "pod", token: fixture.signed(issuer, satoken.Binding{Pod: &satoken.Ref{Name: "pod", UID: "pod-1"}}, issuer), user: robot,
			remove: func() { fixture.api.Delete("pods", "default", "pod") }, err: `pod "pod" of the token does not exist`},
		{
			name:   "node",
			token:  fixture.signed(issuer, satoken.Binding{Node: &satoken.Ref{Name: "node", UID: "node-1"}}, issuer),
			user:   robot,
			remove: func() { fixture.api.Delete("nodes", "", "node") }, err: `node "node" of the token does not exist`,
		},
		{
			name:   "secret",
			token:  fixture.signed(issuer, satoken.Binding{Secret: &satoken.Ref{Name: "secret", UID: "secret-1"}}, issuer),
			user:   robot,
			remove: func() { fixture.api.Delete("secrets", "default", "secret") }, err: `secret "secret" of the token does not exist`,
		},
		{name: "bootstrap token", token: "abcdef.0123456789abcdef", user: "system:bootstrap:abcdef",
			remove: func() { fixture.api.Delete("secrets", "kube-system", "bootstrap-token-abcdef") },
			err:    `bootstrap token "abcdef" not found`,
		},
		{
			name:   "account was recreated",
			token:  fixture.signed(issuer, satoken.Binding{}, issuer),
			user:   robot,
			remove: func() { fixture.api.Put("serviceaccounts", serviceAccount("2")) },
			err:    "service account UID (uid-2) does not match claim (uid-1)",
		},
	}
	for _, step := range steps {
		if got := fixture.review(step.token); got != step.user {
			t.Fatalf("%s: got %q before the deletion, want %v", step.name, got, step.user)
		}
	}
	release := fixture.api.HoldWatches()
	defer release()
	for _, step := range steps {
		step.remove()
		if got := fixture.review(step.token); got != step.err {
			t.Errorf("%s: got %q, want %q", step.name, got, step.err)
		}
	}
}

// TestOnlyTokensWithObjectsNeedAPIServer checks that only tokens that depend on objects get 503 while the API server
// is unreachable.
func TestOnlyTokensWithObjectsNeedAPIServer(t *testing.T) {
	fixture, provider := newFixture(t), oidctest.New(t)
	fixture.api.Put("serviceaccounts", serviceAccount("1"))
	fixture.run(fixture.optionsWithAllTokens(provider))
	token := fixture.signed(issuer, satoken.Binding{}, issuer)
	fixture.api.SetDown(true)
	if got := fixture.review(token); got != "503" {
		t.Errorf("got %q, want \"503\"", got)
	}
	if got := fixture.review("static-token"); got != "carol" {
		t.Errorf("got %q, want \"carol\"", got)
	}
	fixture.api.SetDown(false)
	if got := fixture.review(token); got != "system:serviceaccount:default:robot" {
		t.Errorf("got %q, want \"system:serviceaccount:default:robot\"", got)
	}
}

// TestReviewsRequirePermittedClientCertificate checks that only clients with a permitted certificate get
// reviews.
func TestReviewsRequirePermittedClientCertificate(t *testing.T) {
	fixture := newFixture(t)
	opts := fixture.options()
	opts.Tokens.File = fixture.write("tokens.csv", "static-token,carol,3\n")
	opts.Serving.ClientCAFile = fixture.files.TrustBundle(Name, certs.ClientCA)
	opts.Clients.AnyClient = false
	opts.Clients.Names = []string{"system:binnacle:apiserver"}
	fixture.run(opts)
	tests := []struct {
		name string
		pair certs.Pair
		want int
	}{
		{name: "the API server", pair: fixture.files.WebhookClient(), want: http.StatusOK},
		{name: "another name", pair: fixture.files.Admin(), want: http.StatusUnauthorized},
		{name: "another CA", pair: fixture.files.FrontProxy(), want: http.StatusUnauthorized},
		{name: "a serving certificate", pair: fixture.files.APIServer(), want: http.StatusUnauthorized},
		{name: "of etcd", pair: fixture.files.EtcdClient(), want: http.StatusUnauthorized},
		{name: "none", pair: certs.Pair{}, want: http.StatusUnauthorized},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			client := fixture.clientWith(test.pair)
			for _, path := range []string{"/", "/authenticate"} {
				code, response := fixture.post(client, path, v1, "static-token")
				if code != test.want || strings.Contains(response, "carol") != (test.want == http.StatusOK) {
					t.Errorf("%s: got status %d: %s, want %d, the user only with 200", path, code, response, test.want)
				}
			}
		})
	}
	if code, _ := fixture.get("/livez"); code != http.StatusOK {
		t.Errorf("livez without a certificate: got %d, want %v", code, http.StatusOK)
	}
}

// TestBothVersionsAreServedAtBothPaths checks that both versions of reviews are served at both paths, and that GET
// is rejected.
func TestBothVersionsAreServedAtBothPaths(t *testing.T) {
	fixture := newFixture(t)
	opts := fixture.options()
	opts.Tokens.File = fixture.write("tokens.csv", "static-token,carol,3\n")
	fixture.run(opts)
	for _, path := range []string{"/", "/authenticate"} {
		for _, version := range []string{v1, "authentication.k8s.io/v1beta1"} {
			code, response := fixture.post(fixture.client, path, version, "static-token")
			if code != http.StatusOK || !strings.Contains(response, `"apiVersion":"`+version+`"`) ||
				!strings.Contains(response, `"username":"carol"`) {
				t.Errorf("%s %s: got status %d: %s, want %d with user carol in version %s", path, version, code,
					response, http.StatusOK, version)
			}
		}
		if code, _ := fixture.get(path); code != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: got %d, want %v", path, code, http.StatusMethodNotAllowed)
		}
	}
	if code, _ := fixture.post(fixture.client, "/other", v1, "static-token"); code != http.StatusNotFound {
		t.Errorf("other path: got %d, want %v", code, http.StatusNotFound)
	}
}

// TestConfigurationIsReloaded checks that a change of the authentication configuration applies
// without a restart.
func TestConfigurationIsReloaded(t *testing.T) {
	fixture, provider := newFixture(t), oidctest.New(t)
	config := func(prefix string) string {
		ca, err := json.Marshal(provider.CA())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"apiVersion":"apiserver.config.k8s.io/v1beta1","kind":"AuthenticationConfiguration","jwt":[{"issuer":{"url":%q,"audiences":[%q],"certificateAuthority":%s},"claimMappings":{"username":{"claim":"sub","prefix":%q}}}]}`,
			provider.URL(), oidctest.ClientID, ca, prefix)
	}
	opts := fixture.options()
	opts.Tokens.JWT.File = fixture.write("authn.yaml", config("one:"))
	fixture.run(opts)
	token := provider.Token(nil)
	fixture.eventually(func() bool { return fixture.review(token) == "one:ada" })
	fixture.write("authn.yaml", config("two:"))
	fixture.eventually(func() bool { return fixture.review(token) == "two:ada" })
	fixture.write("authn.yaml", "broken")
	fixture.eventually(func() bool {
		_, metrics := fixture.get("/metrics")
		return strings.Contains(metrics, "apiserver_authentication_config_controller_automatic_reloads_total") &&
			strings.Contains(metrics, `status="failure"} 1`)
	})
	if got := fixture.review(token); got != "two:ada" {
		t.Errorf("after an invalid file: got %q, want \"two:ada\"", got)
	}
}

// TestValidateRejectsInvalidOptions checks the errors for invalid flags.
func TestValidateRejectsInvalidOptions(t *testing.T) {
	tests := []struct {
		name string
		set  func(opts *Options)
		want string
	}{
		{name: "no client CA", set: func(*Options) {}, want: "--client-ca-file is required"},
		{
			name: "empty audience",
			set:  func(opts *Options) { opts.Tokens.Audiences = []string{""} },
			want: "--api-audiences: an audience is empty",
		},
		{
			name: "issuer without keys",
			set:  func(opts *Options) { opts.Tokens.ServiceAccounts.Issuers = []string{"x"} },
			want: "go together",
		},
		{
			name: "keys without issuer",
			set:  func(opts *Options) { opts.Tokens.ServiceAccounts.KeyFiles = []string{files.ServiceAccountKey()} },
			want: "go together",
		},
		{
			name: "no key",
			set:  func(opts *Options) { opts.Tokens.ServiceAccounts.KeyFiles = []string{"/no/such"} },
			want: "--service-account-key-file: open /no/such",
		},
		{
			name: "issuer twice",
			set:  func(opts *Options) { opts.Tokens.ServiceAccounts.Issuers = []string{"x", "x"} },
			want: `"x" is given twice`,
		},
		{
			name: "a gate that is locked",
			set:  func(opts *Options) { _ = opts.Features.Set("ServiceAccountTokenJTI=false") },
			want: "cannot set feature gate ServiceAccountTokenJTI to false, feature is locked to true",
		},
		{name: "configuration behind a gate", set: func(opts *Options) {
			_ = opts.Features.Set("StructuredAuthenticationConfiguration=false")
			opts.Tokens.JWT.File = "z"
		}, want: "--authentication-config needs the feature gate StructuredAuthenticationConfiguration"},
		{
			name: "OIDC issuer without a client ID",
			set:  func(opts *Options) { opts.Tokens.JWT.OIDC.IssuerURL = "https://x" },
			want: "must be specified together",
		},
		{name: "OIDC flags and a configuration", set: func(opts *Options) {
			opts.Tokens.JWT.OIDC.IssuerURL = "https://x"
			opts.Tokens.JWT.OIDC.ClientID = "y"
			opts.Tokens.JWT.File = "z"
		}, want: "mutually exclusive"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			opts := NewOptions()
			opts.Serving.CertDir = t.TempDir()
			test.set(opts)
			if err := errors.Join(opts.Validate()...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one that contains %q", err, test.want)
			}
		})
	}
}

// TestRunFailsWithUnusableFiles checks the errors for files and addresses that cannot be used.
func TestRunFailsWithUnusableFiles(t *testing.T) {
	fixture := newFixture(t)
	tests := []struct {
		name string
		set  func(opts *Options)
		want string
	}{
		{name: "no certificate", set: func(opts *Options) { opts.Serving.CertFile = "/no/such" }, want: "/no/such"},
		{
			name: "no API server",
			set:  func(opts *Options) { opts.Tokens.BootstrapTokens, opts.Client.Master = true, "http://%zz" },
			want: "%zz",
		},
		{name: "no token file", set: func(opts *Options) { opts.Tokens.File = "/no/such" }, want: "--token-auth-file"},
		{name: "no configuration", set: func(opts *Options) { opts.Tokens.JWT.File = "/no/such" }, want: "--authentication-config"},
		{name: "anonymous behind a gate", set: func(opts *Options) {
			_ = opts.Features.Set("AnonymousAuthConfigurableEndpoints=false")
			opts.Tokens.JWT.File = fixture.write("anonymous.yaml",
				"apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true}\n")
		}, want: "anonymous: needs the feature gate AnonymousAuthConfigurableEndpoints"},
		{name: "own issuer", set: func(opts *Options) {
			opts.Tokens.ServiceAccounts.Issuers = []string{issuer}
			opts.Tokens.ServiceAccounts.KeyFiles = []string{fixture.files.ServiceAccountPublicKey()}
			opts.Tokens.JWT.File = fixture.write("own.yaml",
				"apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {url: "+issuer+", audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n")
		}, want: "line 4: jwt[0].issuer.url: Invalid value"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			opts := fixture.options()
			test.set(opts)
			if err := errors.Join(append(opts.Validate(), opts.Complete())...); err != nil {
				t.Fatal(err)
			}
			if err := opts.Run(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one that contains %q", err, test.want)
			}
		})
	}
}

// TestRunFailsIfKeyIsRemoved checks the error if a key is removed after the options were validated.
func TestRunFailsIfKeyIsRemoved(t *testing.T) {
	f := newFixture(t)
	raw, err := os.ReadFile(f.files.ServiceAccountPublicKey())
	if err != nil {
		t.Fatal(err)
	}
	opts := f.options()
	opts.Tokens.ServiceAccounts.Issuers, opts.Tokens.ServiceAccounts.KeyFiles = []string{issuer}, []string{f.write("sa.pub",
		string(raw))}
	if err := errors.Join(append(opts.Validate(), opts.Complete(), os.Remove(opts.Tokens.ServiceAccounts.KeyFiles[0]))...); err != nil {
		t.Fatal(err)
	}
	if err := opts.Run(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(),
		"--service-account-key-file") {
		t.Errorf("got %v; want an error about --service-account-key-file", err)
	}
}

// TestGatesAreReported checks that the metrics list all gates, including those that do not concern
// the service.
func TestGatesAreReported(t *testing.T) {
	fixture := newFixture(t)
	opts := fixture.options()
	if err := opts.Features.Set("WatchList=true,StructuredAuthenticationConfiguration=false"); err != nil {
		t.Fatal(err)
	}
	fixture.run(opts)
	_, body := fixture.get("/metrics")
	for _, want := range []string{`kubernetes_feature_enabled{name="WatchList",stage="BETA"} 1`,
		`kubernetes_feature_enabled{name="StructuredAuthenticationConfiguration",stage="BETA"} 0`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in the metrics, want one", want)
		}
	}
}

// TestUnconfiguredKindsOfTokensAreUnknown checks that tokens of a kind that is not configured are unknown, and the
// service does not wait for objects that no configured kind needs.
func TestUnconfiguredKindsOfTokensAreUnknown(t *testing.T) {
	const token = "abcdef.0123456789abcdef"
	for name, test := range map[string]struct {
		set  func(*fixture, *Options)
		want [3]string // static, bootstrap, service account
	}{
		"static": {set: func(f *fixture, opts *Options) {
			opts.Tokens.File = f.write("tokens.csv", "static-token,carol,3\n")
			f.api.SetDown(true)
		}, want: [3]string{"carol", "unknown", "unknown"}},
		"bootstrap": {set: func(_ *fixture, opts *Options) { opts.Tokens.BootstrapTokens = true },
			want: [3]string{"unknown", "system:bootstrap:abcdef", "unknown"}},
		"service account": {set: func(f *fixture, opts *Options) {
			opts.Tokens.ServiceAccounts.Issuers, opts.Tokens.ServiceAccounts.KeyFiles = []string{issuer}, []string{f.files.ServiceAccountPublicKey()}
		}, want: [3]string{"unknown", "unknown", "system:serviceaccount:default:robot"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.api.Put("serviceaccounts", serviceAccount("1"))
			f.api.Put("secrets", bootstrapSecret("abcdef", "0123456789abcdef"))
			opts := f.options()
			test.set(f, opts)
			f.run(opts)
			if got := [3]string{f.review("static-token"), f.review(token),
				f.review(f.signed(issuer, satoken.Binding{}, issuer))}; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestConfiguredAudiencesReplaceIssuers checks that configured audiences replace the issuers as audiences of the API
// server.
func TestConfiguredAudiencesReplaceIssuers(t *testing.T) {
	fixture := newFixture(t)
	fixture.api.Put("serviceaccounts", serviceAccount("1"))
	opts := fixture.options()
	opts.Tokens.Audiences = []string{"own"}
	opts.Tokens.File = fixture.write("tokens.csv", "static-token,carol,3\n")
	opts.Tokens.ServiceAccounts.Issuers, opts.Tokens.ServiceAccounts.KeyFiles = []string{issuer}, []string{fixture.files.ServiceAccountPublicKey()}
	fixture.run(opts)
	if got := [3]string{fixture.review("static-token"), fixture.review("static-token", "own"),
		fixture.review("static-token", issuer)}; got != [3]string{"carol", "carol", "unknown"} {
		t.Errorf("got users %q, want carol, carol, unknown", got)
	}
	if got := fixture.review(fixture.signed(issuer, satoken.Binding{}, "own")); got != "system:serviceaccount:default:robot" {
		t.Errorf("own audience: got %q, want \"system:serviceaccount:default:robot\"", got)
	}
	if got := fixture.review(fixture.signed(issuer, satoken.Binding{}, issuer)); !strings.Contains(got,
		"is invalid for the target audiences") {
		t.Errorf("audience of the issuer: got %q, want the error: is invalid for the target audiences", got)
	}
}
