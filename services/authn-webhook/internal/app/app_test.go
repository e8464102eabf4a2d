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

func TestEveryKindOfToken(t *testing.T) {
	w, provider := newFixture(t), oidctest.New(t)
	w.api.Put("serviceaccounts", serviceAccount("1"))
	w.api.Put("secrets", bootstrapSecret("abcdef", "0123456789abcdef"))
	w.run(w.everything(provider))
	token := provider.Token(nil)
	w.eventually(func() bool { return w.review(token) == "oidc:ada" })
	account := w.signed(issuer, satoken.Binding{}, issuer)
	tests := []struct {
		name, token string
		audiences   []string
		want        string
	}{
		{name: "static", token: "static-token", audiences: nil, want: "carol"},
		{name: "static, of a suite's service", token: "of-the-suite", audiences: nil, want: `user "system:binnacle:apiserver": names that begin with system:binnacle: and the group system:binnacle are reserved for the suite's own services`},
		{name: "static for us", token: "static-token", audiences: []string{issuer}, want: "carol"},
		{name: "static for others", token: "static-token", audiences: []string{"vault"}, want: "unknown"},
		{name: "bootstrap", token: "abcdef.0123456789abcdef", audiences: nil, want: "system:bootstrap:abcdef"},
		{name: "bootstrap for others", token: "abcdef.0123456789abcdef", audiences: []string{"vault"}, want: "unknown"},
		{name: "bootstrap, wrong", token: "abcdef.0123456789abcdeX", audiences: nil, want: "unknown"},
		{name: "bootstrap, wrong secret", token: "abcdef.0123456789abcdee", audiences: nil, want: "bootstrap token: the secret is wrong"},
		{name: "service account", token: account, audiences: nil, want: "system:serviceaccount:default:robot"},
		{name: "service account for others", token: account, audiences: []string{"vault"}, want: `token audiences ["` + issuer + `"] is invalid for the target audiences ["vault"]`},
		{name: "service account of others for others", token: w.signed(issuer, satoken.Binding{}, "vault"), audiences: []string{"vault"}, want: "system:serviceaccount:default:robot"},
		{name: "service account of another issuer", token: w.signed("https://other", satoken.Binding{}, issuer), audiences: nil, want: "unknown"},
		{name: "OIDC", token: token, audiences: nil, want: "oidc:ada"},
		{name: "OIDC for us", token: token, audiences: []string{issuer}, want: "oidc:ada"},
		{name: "OIDC for others", token: token, audiences: []string{"vault"}, want: "unknown"},
		{name: "OIDC expired", token: provider.Token(map[string]any{"exp": 1}), audiences: nil, want: "oidc: verify token: oidc: token is expired (Token Expiry: 1970-01-01 00:00:01 +0000 UTC)"},
		{name: "stranger", token: "stranger", audiences: nil, want: "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := w.review(tt.token, tt.audiences...); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if strings.Contains(w.logs.String(), tt.token) && tt.token != "stranger" {
				t.Error("got the token in the log")
			}
		})
	}
	_, metrics := w.get("/metrics")
	for _, name := range []string{"serviceaccount_valid_tokens_total 2", `authn_webhook_review_duration_seconds_count{result="authenticated"}`} {
		if !strings.Contains(metrics, name) {
			t.Errorf("got no metric %s", name)
		}
	}
}

// TestRevocationIsImmediate deletes the objects of tokens while the watches are delayed.
func TestRevocationIsImmediate(t *testing.T) {
	w, provider := newFixture(t), oidctest.New(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "pod-1"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-1"}}
	held := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "secret", UID: "secret-1"}, Type: corev1.SecretTypeOpaque}
	w.api.Put("serviceaccounts", serviceAccount("1"))
	w.api.Put("pods", pod)
	w.api.Put("nodes", node)
	w.api.Put("secrets", held)
	w.api.Put("secrets", bootstrapSecret("abcdef", "0123456789abcdef"))
	w.run(w.everything(provider))
	const robot = "system:serviceaccount:default:robot"
	steps := []struct {
		name, token, user string
		remove            func()
		err               string
	}{
		{name: "pod", token: w.signed(issuer, satoken.Binding{Pod: &satoken.Ref{Name: "pod", UID: "pod-1"}}, issuer), user: robot,
			remove: func() { w.api.Delete("pods", "default", "pod") }, err: `pod "pod" of the token does not exist`},
		{name: "node", token: w.signed(issuer, satoken.Binding{Node: &satoken.Ref{Name: "node", UID: "node-1"}}, issuer), user: robot,
			remove: func() { w.api.Delete("nodes", "", "node") }, err: `node "node" of the token does not exist`},
		{name: "secret", token: w.signed(issuer, satoken.Binding{Secret: &satoken.Ref{Name: "secret", UID: "secret-1"}}, issuer), user: robot,
			remove: func() { w.api.Delete("secrets", "default", "secret") }, err: `secret "secret" of the token does not exist`},
		{name: "bootstrap token", token: "abcdef.0123456789abcdef", user: "system:bootstrap:abcdef",
			remove: func() { w.api.Delete("secrets", "kube-system", "bootstrap-token-abcdef") }, err: "there is no bootstrap token abcdef"},
		{name: "account was recreated", token: w.signed(issuer, satoken.Binding{}, issuer), user: robot, remove: func() { w.api.Put("serviceaccounts", serviceAccount("2")) }, err: "service account UID (uid-2) does not match claim (uid-1)"},
	}
	for _, s := range steps {
		if got := w.review(s.token); got != s.user {
			t.Fatalf("%s: got %q before the deletion", s.name, got)
		}
	}
	release := w.api.HoldWatches()
	defer release()
	for _, s := range steps {
		s.remove()
		if got := w.review(s.token); got != s.err {
			t.Errorf("%s: got %q, want %q", s.name, got, s.err)
		}
	}
}

func TestAPIServerIsDown(t *testing.T) {
	w, provider := newFixture(t), oidctest.New(t)
	w.api.Put("serviceaccounts", serviceAccount("1"))
	w.run(w.everything(provider))
	token := w.signed(issuer, satoken.Binding{}, issuer)
	w.api.SetDown(true)
	if got := w.review(token); got != "503" {
		t.Errorf("got %q", got)
	}
	if got := w.review("static-token"); got != "carol" {
		t.Errorf("got %q", got)
	}
	w.api.SetDown(false)
	if got := w.review(token); got != "system:serviceaccount:default:robot" {
		t.Errorf("got %q", got)
	}
}

// TestClientCertificates serves reviews only to clients with a permitted certificate.
func TestClientCertificates(t *testing.T) {
	w := newFixture(t)
	o := w.options()
	o.Tokens.File = w.write("tokens.csv", "static-token,carol,3\n")
	o.Serving.ClientCAFile = w.files.Trust(Name, certs.ClientCA)
	o.Clients.AnyClient = false
	o.Clients.Names = []string{"system:binnacle:apiserver"}
	w.run(o)
	tests := []struct {
		name string
		pair certs.Pair
		want int
	}{
		{name: "the API server", pair: w.files.WebhookClient(), want: http.StatusOK},
		{name: "another name", pair: w.files.Admin(), want: http.StatusUnauthorized},
		{name: "another CA", pair: w.files.FrontProxy(), want: http.StatusUnauthorized},
		{name: "a serving certificate", pair: w.files.APIServer(), want: http.StatusUnauthorized},
		{name: "of etcd", pair: w.files.EtcdClient(), want: http.StatusUnauthorized},
		{name: "none", pair: certs.Pair{}, want: http.StatusUnauthorized},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := w.with(tt.pair)
			for _, path := range []string{"/", "/authenticate"} {
				code, answer := w.post(c, path, v1, "static-token")
				if code != tt.want || strings.Contains(answer, "carol") != (tt.want == http.StatusOK) {
					t.Errorf("%s: got %d %s", path, code, answer)
				}
			}
		})
	}
	if code, _ := w.get("/livez"); code != http.StatusOK {
		t.Errorf("livez without a certificate: got %d", code)
	}
}

func TestVersionsAndPaths(t *testing.T) {
	w := newFixture(t)
	o := w.options()
	o.Tokens.File = w.write("tokens.csv", "static-token,carol,3\n")
	w.run(o)
	for _, path := range []string{"/", "/authenticate"} {
		for _, version := range []string{v1, "authentication.k8s.io/v1beta1"} {
			code, answer := w.post(w.client, path, version, "static-token")
			if code != http.StatusOK || !strings.Contains(answer, `"apiVersion":"`+version+`"`) || !strings.Contains(answer, `"username":"carol"`) {
				t.Errorf("%s %s: got %d %s", path, version, code, answer)
			}
		}
		if code, _ := w.get(path); code != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: got %d", path, code)
		}
	}
	if code, _ := w.post(w.client, "/other", v1, "static-token"); code != http.StatusNotFound {
		t.Errorf("other path: got %d", code)
	}
}

func TestConfigurationIsReloaded(t *testing.T) {
	w, provider := newFixture(t), oidctest.New(t)
	config := func(prefix string) string {
		ca, err := json.Marshal(provider.CA())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"apiVersion":"apiserver.config.k8s.io/v1beta1","kind":"AuthenticationConfiguration","jwt":[{"issuer":{"url":%q,"audiences":[%q],"certificateAuthority":%s},"claimMappings":{"username":{"claim":"sub","prefix":%q}}}]}`,
			provider.URL(), oidctest.ClientID, ca, prefix)
	}
	o := w.options()
	o.Tokens.JWT.File = w.write("authn.yaml", config("one:"))
	w.run(o)
	token := provider.Token(nil)
	w.eventually(func() bool { return w.review(token) == "one:ada" })
	w.write("authn.yaml", config("two:"))
	w.eventually(func() bool { return w.review(token) == "two:ada" })
	w.write("authn.yaml", "broken")
	w.eventually(func() bool {
		_, metrics := w.get("/metrics")
		return strings.Contains(metrics, "apiserver_authentication_config_controller_automatic_reloads_total") && strings.Contains(metrics, `status="failure"} 1`)
	})
	if got := w.review(token); got != "two:ada" {
		t.Errorf("after an invalid file: got %q", got)
	}
}

// TestOptionErrors rejects invalid flags.
func TestOptionErrors(t *testing.T) {
	tests := []struct {
		name string
		set  func(o *Options)
		want string
	}{
		{name: "no client CA", set: func(*Options) {}, want: "--client-ca-file is required"},
		{name: "empty audience", set: func(o *Options) { o.Tokens.Audiences = []string{""} }, want: "--api-audiences: an audience is empty"},
		{name: "issuer without keys", set: func(o *Options) { o.Tokens.ServiceAccounts.Issuers = []string{"x"} }, want: "go together"},
		{name: "keys without issuer", set: func(o *Options) { o.Tokens.ServiceAccounts.KeyFiles = []string{files.ServiceAccountKey()} }, want: "go together"},
		{name: "no key", set: func(o *Options) { o.Tokens.ServiceAccounts.KeyFiles = []string{"/no/such"} }, want: "--service-account-key-file: open /no/such"},
		{name: "issuer twice", set: func(o *Options) { o.Tokens.ServiceAccounts.Issuers = []string{"x", "x"} }, want: `"x" is given twice`},
		{name: "a gate that is locked", set: func(o *Options) { _ = o.Features.Set("ServiceAccountTokenJTI=false") }, want: "cannot set feature gate ServiceAccountTokenJTI to false, feature is locked to true"},
		{name: "configuration behind a gate", set: func(o *Options) {
			_ = o.Features.Set("StructuredAuthenticationConfiguration=false")
			o.Tokens.JWT.File = "z"
		}, want: "--authentication-config needs the feature gate StructuredAuthenticationConfiguration"},
		{name: "OIDC by halves", set: func(o *Options) { o.Tokens.JWT.OIDC.IssuerURL = "https://x" }, want: "must be specified together"},
		{name: "OIDC twice", set: func(o *Options) {
			o.Tokens.JWT.OIDC.IssuerURL = "https://x"
			o.Tokens.JWT.OIDC.ClientID = "y"
			o.Tokens.JWT.File = "z"
		}, want: "mutually exclusive"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := NewOptions()
			o.Serving.CertDir = t.TempDir()
			tt.set(o)
			if err := errors.Join(o.Validate()...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestBuildErrors fails to start with files that cannot be read.
func TestBuildErrors(t *testing.T) {
	w := newFixture(t)
	tests := []struct {
		name string
		set  func(o *Options)
		want string
	}{
		{name: "no certificate", set: func(o *Options) { o.Serving.CertFile = "/no/such" }, want: "/no/such"},
		{name: "no API server", set: func(o *Options) { o.Tokens.BootstrapTokens, o.Client.Master = true, "http://%zz" }, want: "%zz"},
		{name: "no token file", set: func(o *Options) { o.Tokens.File = "/no/such" }, want: "--token-auth-file"},
		{name: "no configuration", set: func(o *Options) { o.Tokens.JWT.File = "/no/such" }, want: "--authentication-config"},
		{name: "anonymous behind a gate", set: func(o *Options) {
			_ = o.Features.Set("AnonymousAuthConfigurableEndpoints=false")
			o.Tokens.JWT.File = w.write("anonymous.yaml", "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true}\n")
		}, want: "anonymous: needs the feature gate AnonymousAuthConfigurableEndpoints"},
		{name: "own issuer", set: func(o *Options) {
			o.Tokens.ServiceAccounts.Issuers = []string{issuer}
			o.Tokens.ServiceAccounts.KeyFiles = []string{w.files.ServiceAccountPublicKey()}
			o.Tokens.JWT.File = w.write("own.yaml", "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {url: "+issuer+", audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n")
		}, want: "line 4: jwt[0].issuer.url: Invalid value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := w.options()
			tt.set(o)
			if err := errors.Join(append(o.Validate(), o.Complete())...); err != nil {
				t.Fatal(err)
			}
			if err := o.Run(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestMissingKey: a key is removed between the validation of the options and the start.
func TestMissingKey(t *testing.T) {
	w := newFixture(t)
	raw, err := os.ReadFile(w.files.ServiceAccountPublicKey())
	if err != nil {
		t.Fatal(err)
	}
	o := w.options()
	o.Tokens.ServiceAccounts.Issuers, o.Tokens.ServiceAccounts.KeyFiles = []string{issuer}, []string{w.write("sa.pub", string(raw))}
	if err := errors.Join(append(o.Validate(), o.Complete(), os.Remove(o.Tokens.ServiceAccounts.KeyFiles[0]))...); err != nil {
		t.Fatal(err)
	}
	if err := o.Run(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--service-account-key-file") {
		t.Errorf("got %v", err)
	}
}

// TestGatesAreReported: the metrics list all gates, including those that do not concern the
// service.
func TestGatesAreReported(t *testing.T) {
	w := newFixture(t)
	o := w.options()
	if err := o.Features.Set("WatchList=true,StructuredAuthenticationConfiguration=false"); err != nil {
		t.Fatal(err)
	}
	w.run(o)
	_, body := w.get("/metrics")
	for _, want := range []string{`kubernetes_feature_enabled{name="WatchList",stage="BETA"} 1`, `kubernetes_feature_enabled{name="StructuredAuthenticationConfiguration",stage="BETA"} 0`} {
		if !strings.Contains(body, want) {
			t.Errorf("got no %s in the metrics", want)
		}
	}
}

// TestKindsOfTokens: tokens of a kind that is not configured are unknown, and the service does not
// wait for objects that no configured kind needs.
func TestKindsOfTokens(t *testing.T) {
	const token = "abcdef.0123456789abcdef"
	for name, c := range map[string]struct {
		set  func(*fixture, *Options)
		want [3]string // static, bootstrap, service account
	}{
		"static": {func(w *fixture, o *Options) {
			o.Tokens.File = w.write("tokens.csv", "static-token,carol,3\n")
			w.api.SetDown(true)
		}, [3]string{"carol", "unknown", "unknown"}},
		"bootstrap": {func(_ *fixture, o *Options) { o.Tokens.BootstrapTokens = true }, [3]string{"unknown", "system:bootstrap:abcdef", "unknown"}},
		"service account": {func(w *fixture, o *Options) {
			o.Tokens.ServiceAccounts.Issuers, o.Tokens.ServiceAccounts.KeyFiles = []string{issuer}, []string{w.files.ServiceAccountPublicKey()}
		}, [3]string{"unknown", "unknown", "system:serviceaccount:default:robot"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.api.Put("serviceaccounts", serviceAccount("1"))
			w.api.Put("secrets", bootstrapSecret("abcdef", "0123456789abcdef"))
			o := w.options()
			c.set(w, o)
			w.run(o)
			if got := [3]string{w.review("static-token"), w.review(token), w.review(w.signed(issuer, satoken.Binding{}, issuer))}; got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestAudiences: configured audiences replace the issuers as audiences of the API server.
func TestAudiences(t *testing.T) {
	w := newFixture(t)
	w.api.Put("serviceaccounts", serviceAccount("1"))
	o := w.options()
	o.Tokens.Audiences = []string{"own"}
	o.Tokens.File = w.write("tokens.csv", "static-token,carol,3\n")
	o.Tokens.ServiceAccounts.Issuers, o.Tokens.ServiceAccounts.KeyFiles = []string{issuer}, []string{w.files.ServiceAccountPublicKey()}
	w.run(o)
	if got := [3]string{w.review("static-token"), w.review("static-token", "own"), w.review("static-token", issuer)}; got != [3]string{"carol", "carol", "unknown"} {
		t.Errorf("got %q", got)
	}
	if got := w.review(w.signed(issuer, satoken.Binding{}, "own")); got != "system:serviceaccount:default:robot" {
		t.Errorf("own audience: got %q", got)
	}
	if got := w.review(w.signed(issuer, satoken.Binding{}, issuer)); !strings.Contains(got, "is invalid for the target audiences") {
		t.Errorf("audience of the issuer: got %q", got)
	}
}
