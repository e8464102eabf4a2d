package authnconfig_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/authenticator"
	"binnacle/libs/authnconfig"
	"binnacle/libs/oidctoken"
	"binnacle/libs/oidctoken/oidctest"
)

// issuerConfig returns the configuration of a test issuer with mappings and rules.
func issuerConfig(i *oidctest.Issuer, rest string) string {
	ca := strings.ReplaceAll(strings.TrimSpace(i.CA()), "\n", "\n      ")
	return fmt.Sprintf("- issuer:\n    url: %s\n    audiences: [%s]\n    certificateAuthority: |\n      %s\n%s", i.URL(), oidctest.ClientID, ca, rest)
}

func usernameMapping(prefix string) string {
	return "  claimMappings:\n    username: {claim: sub, prefix: '" + prefix + "'}\n"
}

// fixture is a running Authenticator with its log.
type fixture struct {
	*authnconfig.Authenticator
	file     string
	logs     chan string
	registry *prometheus.Registry
	reloads  atomic.Int64 // number of calls of Reloaded
}

// startAuthenticator runs an authenticator with a configuration file.
func startAuthenticator(t *testing.T, content string) *fixture {
	t.Helper()
	w := &fixture{file: filepath.Join(t.TempDir(), "authn.yaml"), logs: make(chan string, 100), registry: prometheus.NewRegistry()}
	w.writeFile(t, content)
	var err error
	w.Authenticator, err = authnconfig.New(authnconfig.Config{
		File:    w.file,
		Logger:  slog.New(slog.NewTextHandler(logLines(w.logs), nil)),
		Metrics: authnconfig.NewMetrics(w.registry, "me"), Reloaded: func() { w.reloads.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want error %v", err, context.Canceled)
		}
	})
	return w
}

// logLines is a writer that sends log lines to a channel.
type logLines chan string

func (l logLines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func (w *fixture) writeFile(t *testing.T, content string) {
	t.Helper()
	next := w.file + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(content), 0o600), os.Rename(next, w.file)); err != nil {
		t.Fatal(err)
	}
}

// awaitLog waits until all texts were logged, in any order.
func (w *fixture) awaitLog(t *testing.T, texts ...string) {
	t.Helper()
	for line := range w.logs {
		texts = slices.DeleteFunc(texts, func(text string) bool { return strings.Contains(line, text) })
		if len(texts) == 0 {
			return
		}
	}
}

// authenticate returns the user of a token, or the reason of its rejection.
func (w *fixture) authenticate(t *testing.T, token string) string {
	t.Helper()
	r, ok, err := w.AuthenticateToken(t.Context(), token, nil)
	switch {
	case err != nil:
		return err.Error()
	case !ok:
		return "no opinion"
	}
	return r.User.Name
}

const (
	reachable = "OIDC issuer is reachable"
	reloaded  = "configuration reloaded"
	kept      = "keeping the previous one"
)

// TestReload changes the issuers in the file. An invalid file keeps the previous ones.
func TestReload(t *testing.T) {
	one, two := oidctest.New(t), oidctest.New(t)
	w := startAuthenticator(t, header+"jwt:\n"+issuerConfig(one, usernameMapping("a:")))
	w.awaitLog(t, reachable)
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	if got := w.authenticate(t, one.Token(nil)); got != "a:ada" {
		t.Errorf("got %q, want \"a:ada\"", got)
	}
	if got := w.authenticate(t, two.Token(nil)); got != "no opinion" {
		t.Errorf("unconfigured issuer: %q, want \"no opinion\"", got)
	}
	asked := one.KeyRequests()

	w.writeFile(t, header+"jwt:\n"+issuerConfig(one, usernameMapping("b:"))+issuerConfig(two, usernameMapping("c:")))
	w.awaitLog(t, reloaded, reachable)
	if got := w.authenticate(t, one.Token(nil)); got != "b:ada" {
		t.Errorf("got %q, want \"b:ada\"", got)
	}
	if got := w.authenticate(t, two.Token(nil)); got != "c:ada" {
		t.Errorf("got %q, want \"c:ada\"", got)
	}
	if n := one.KeyRequests(); n != asked {
		t.Errorf("an unchanged issuer got %d more requests, want none", n-asked)
	}
	one.Rotate("RS256")
	if got := w.authenticate(t, one.Token(nil)); got != "b:ada" {
		t.Errorf("unchanged issuer with a new key: %q, want \"b:ada\"", got)
	}

	w.writeFile(t, header+"jwt:\n"+issuerConfig(two, usernameMapping("")))
	w.awaitLog(t, reloaded)
	if got := w.authenticate(t, one.Token(nil)); got != "no opinion" {
		t.Errorf("removed issuer: %q, want \"no opinion\"", got)
	}
	if got := w.authenticate(t, two.Token(nil)); got != "ada" {
		t.Errorf("got %q, want \"ada\"", got)
	}
	// Stopping an issuer must not affect others.
	two.Rotate("RS256")
	if got := w.authenticate(t, two.Token(nil)); got != "ada" {
		t.Errorf("got %q, want \"ada\"", got)
	}
	w.writeFile(t, header+"jwt:\n"+issuerConfig(two, usernameMapping("d:")))
	w.awaitLog(t, reloaded)
	if got := w.authenticate(t, two.Token(nil)); got != "d:ada" {
		t.Errorf("got %q, want \"d:ada\"", got)
	}
	if got := w.metricValue(t, "automatic_reloads_total", "success"); got != 3 || w.reloads.Load() != 3 {
		t.Errorf("got %v counted reloads and %d calls of Reloaded, want 3 of each", got, w.reloads.Load())
	}
	if got := w.metricValue(t, "automatic_reload_last_timestamp_seconds", "success"); got < 1e9 {
		t.Errorf("last reload = %v, want at least 1e9", got)
	}
}

// TestInvalidFileKeepsConfiguration checks that an invalid file is counted as a failed reload, and
// that the previous configuration stays in use.
func TestInvalidFileKeepsConfiguration(t *testing.T) {
	one := oidctest.New(t)
	good := header + "jwt:\n" + issuerConfig(one, usernameMapping("a:")) + "anonymous: {enabled: true}\n"
	w := startAuthenticator(t, good)
	w.awaitLog(t, reachable)
	for i, bad := range []string{"", "{", header + "x: 1\n", strings.Replace(good, "claim: sub", "claim: ''", 1)} {
		w.writeFile(t, bad)
		w.awaitLog(t, kept)
		if got := w.authenticate(t, one.Token(nil)); got != "a:ada" || !w.Anonymous().Allows("/") {
			t.Errorf("invalid file %q: got %q, want the previous configuration, user a:ada", bad, got)
		}
		if got := w.metricValue(t, "automatic_reloads_total", "failure"); got != float64(i+1) {
			t.Errorf("got %v counted failures, want %d", got, i+1)
		}
	}
	if err := os.Remove(w.file); err != nil {
		t.Fatal(err)
	}
	w.awaitLog(t, kept)
	w.writeFile(t, header+"jwt:\n"+issuerConfig(one, usernameMapping("b:"))+"anonymous: {enabled: false}\n")
	w.awaitLog(t, reloaded)
	if got := w.authenticate(t, one.Token(nil)); got != "b:ada" || w.Anonymous().Allows("/") {
		t.Errorf("got user %q, want b:ada, and no anonymous requests", got)
	}
	w.writeFile(t, header+"jwt:\n"+issuerConfig(one, usernameMapping("c:")))
	w.awaitLog(t, reloaded)
	if got := w.authenticate(t, one.Token(nil)); got != "c:ada" || w.Anonymous() == nil || w.Anonymous().Allows("/") {
		t.Errorf("file without anonymous setting: got user %q, want c:ada, and no anonymous requests", got)
	}
}

// TestReloadRejectsNoValidToken authenticates tokens continuously while the file changes.
func TestReloadRejectsNoValidToken(t *testing.T) {
	one := oidctest.New(t)
	w := startAuthenticator(t, header+"jwt:\n"+issuerConfig(one, usernameMapping("a:")))
	w.awaitLog(t, reachable)
	token := one.Token(nil)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				r, ok, err := w.AuthenticateToken(t.Context(), token, nil)
				if !ok || !strings.HasSuffix(r.User.Name, ":ada") {
					t.Errorf("got %+v, %v, %v, want a user of ada", r, ok, err)
					return
				}
			}
		})
	}
	for i := range 5 {
		// A new metadata URL creates a new provider for the issuer.
		rest := usernameMapping(fmt.Sprintf("%d:", i))
		content := header + "jwt:\n" + issuerConfig(one, rest)
		if i%2 == 0 {
			content = strings.Replace(content, "    audiences:", "    discoveryURL: "+one.DiscoveryURL()+"\n    audiences:", 1)
		}
		w.writeFile(t, content)
		w.awaitLog(t, reloaded)
	}
	stop.Store(true)
	wg.Wait()
	if got := w.authenticate(t, token); got != "4:ada" {
		t.Errorf("got %q, want \"4:ada\"", got)
	}
}

// TestUnreachableIssuerIsNotInitialized checks that tokens of an unreachable issuer fail with
// ErrNotInitialized, and that other issuers are not affected.
func TestUnreachableIssuerIsNotInitialized(t *testing.T) {
	one, down := oidctest.New(t), oidctest.New(t)
	down.SetStatus(503)
	w := startAuthenticator(t, header+"jwt:\n"+issuerConfig(one, usernameMapping(""))+issuerConfig(down, usernameMapping("")))
	w.awaitLog(t, reachable, "failed to read metadata")
	if got := w.authenticate(t, one.Token(nil)); got != "ada" {
		t.Errorf("got %q, want \"ada\"", got)
	}
	if got := w.authenticate(t, down.Token(nil)); !strings.Contains(got, "is not initialized") {
		t.Errorf("got %q, want an error that contains %q", got, "is not initialized")
	}
	if err := w.Check(); !errors.Is(err, oidctoken.ErrNotInitialized) || !strings.Contains(err.Error(), down.URL()) {
		t.Errorf("Check() = %v", err)
	}
}

// TestStartErrors checks that New fails for an invalid and for a missing file.
func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte(header+"x: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		bad:                             "bad.yaml: line 3: unknown field \"x\"",
		filepath.Join(dir, "none.yaml"): "--authentication-config: open",
	} {
		if _, err := authnconfig.New(authnconfig.Config{File: file, Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestRules maps claims to users, and rejects tokens, by the rules of an issuer.
func TestRules(t *testing.T) {
	i := oidctest.New(t)
	const sub = "  claimMappings:\n    username: {expression: 'claims.sub'}\n"
	tests := []struct {
		name   string
		rest   string
		claims map[string]any
		want   authenticator.User
		err    string
	}{
		{name: "expression", rest: "  claimMappings:\n    username: {expression: '\"x:\" + claims.sub'}\n", want: authenticator.User{Name: "x:ada"}},
		{name: "everything", rest: "  claimMappings:\n    username: {claim: sub, prefix: 'p:'}\n    groups: {expression: 'claims.roles.map(r, \"g:\" + r)'}\n    uid: {expression: 'string(claims.num)'}\n" +
			"    extra:\n    - {key: example.org/one, valueExpression: claims.one}\n    - {key: example.org/many, valueExpression: claims.roles}\n    - {key: example.org/none, valueExpression: \"claims.?none.orValue('')\"}\n    - {key: example.org/null, valueExpression: claims.nil}\n",
			claims: map[string]any{"roles": []string{"a", "b"}, "num": 7, "one": "x", "nil": []string{}},
			want:   authenticator.User{Name: "p:ada", UID: "7", Groups: []string{"g:a", "g:b"}, Extra: map[string][]string{"example.org/one": {"x"}, "example.org/many": {"a", "b"}}}},
		{name: "claims as they are", rest: "  claimMappings:\n    username: {claim: sub, prefix: ''}\n    groups: {claim: g, prefix: 'g:'}\n    uid: {claim: id}\n",
			claims: map[string]any{"g": "one", "id": "u"}, want: authenticator.User{Name: "ada", UID: "u", Groups: []string{"g:one"}}},
		{name: "token with an id", rest: "  claimMappings:\n    username: {claim: sub, prefix: ''}\n    extra:\n    - {key: example.org/one, valueExpression: claims.sub}\n",
			claims: map[string]any{"jti": "t-1"}, want: authenticator.User{Name: "ada", Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=t-1"}, "example.org/one": {"ada"}}}},
		{name: "one group", rest: sub + "    groups: {expression: claims.g}\n", claims: map[string]any{"g": "x"}, want: authenticator.User{Name: "ada", Groups: []string{"x"}}},
		{name: "no group", rest: sub + "    groups: {expression: \"claims.?g.orValue('')\"}\n", want: authenticator.User{Name: "ada"}},
		{name: "nested claim", rest: "  claimMappings:\n    username: {expression: claims.a.b}\n", claims: map[string]any{"a": map[string]any{"b": "x"}}, want: authenticator.User{Name: "x"}},
		{name: "rule passes", rest: sub + "  claimValidationRules:\n  - {claim: hd, requiredValue: x}\n  - {expression: claims.n < 5}\n", claims: map[string]any{"hd": "x", "n": 4}, want: authenticator.User{Name: "ada"}},
		{name: "rule with a message passes", rest: sub + "  claimValidationRules:\n  - {expression: claims.n < 5, message: too much}\n", claims: map[string]any{"n": 4}, want: authenticator.User{Name: "ada"}},
		{name: "username claim is empty", rest: "  claimMappings:\n    username: {claim: x, prefix: ''}\n", claims: map[string]any{"x": ""}, want: authenticator.User{}},
		{name: "username is missing", rest: "  claimMappings:\n    username: {expression: 'claims.x'}\n", err: "username: evaluation failed: no such key: x"},
		{name: "groups are missing", rest: sub + "    groups: {expression: claims.g}\n", err: "groups: evaluation failed: no such key: g"},
		{name: "user rule passes", rest: sub + "  userValidationRules:\n  - {expression: 'user.username == \"ada\" && user.groups.size() == 0 && user.uid == \"\" && !(\"x\" in user.extra)'}\n", want: authenticator.User{Name: "ada"}},

		{name: "required claim", rest: sub + "  claimValidationRules:\n  - {claim: hd, requiredValue: x}\n", claims: map[string]any{"hd": "y"}, err: `required claim "hd" has another value than "x"`},
		{name: "rule with a message", rest: sub + "  claimValidationRules:\n  - {expression: claims.n < 5, message: too much}\n", claims: map[string]any{"n": 5}, err: "claim validation rule: too much"},
		{name: "rule without a message", rest: sub + "  claimValidationRules:\n  - {expression: claims.n < 5}\n", claims: map[string]any{"n": 5}, err: "expression 'claims.n < 5' is false"},
		{name: "rule on a missing claim", rest: sub + "  claimValidationRules:\n  - {expression: claims.n < 5}\n", err: "no such key: n"},
		{name: "username is empty", rest: "  claimMappings:\n    username: {expression: 'claims.x'}\n", claims: map[string]any{"x": ""}, err: "username: expression yields an empty string"},
		{name: "username is a number", rest: "  claimMappings:\n    username: {expression: 'claims.x'}\n", claims: map[string]any{"x": 1}, err: "expression yields int, not a string"},
		{name: "username claim is missing", rest: "  claimMappings:\n    username: {claim: x, prefix: ''}\n", err: `username: claim "x" is not present`},
		{name: "email is not verified", rest: "  claimMappings:\n    username: {claim: email, prefix: ''}\n", claims: map[string]any{"email": "x", "email_verified": false}, err: "email is not verified"},
		{name: "groups are a map", rest: sub + "    groups: {expression: claims.g}\n", claims: map[string]any{"g": map[string]any{}}, err: "groups: expression yields map"},
		{name: "groups have a number", rest: sub + "    groups: {expression: claims.g}\n", claims: map[string]any{"g": []any{"a", 1}}, err: "groups: expression yields a list with int in it"},
		{name: "groups claim is a number", rest: sub + "    groups: {claim: g, prefix: ''}\n", claims: map[string]any{"g": 1}, err: `claim "g" is neither`},
		{name: "uid is a list", rest: sub + "    uid: {expression: claims.g}\n", claims: map[string]any{"g": []string{}}, err: "uid: expression yields list"},
		{name: "uid claim is missing", rest: sub + "    uid: {claim: g}\n", err: `uid: claim "g" is not present`},
		{name: "extra is a number", rest: sub + "    extra:\n    - {key: example.org/x, valueExpression: claims.g}\n", claims: map[string]any{"g": 1}, err: `extra "example.org/x": expression yields int`},
		{name: "user rule", rest: sub + "  userValidationRules:\n  - {expression: '!user.username.startsWith(\"a\")', message: no a}\n", err: "user validation rule: no a"},
		{name: "dear rules together", rest: sub + "  claimValidationRules:\n  - {expression: '!claims.text.contains(claims.part)'}\n  - {expression: '!claims.text.contains(claims.part + \"b\")'}\n  - {expression: '!claims.text.contains(claims.part + \"c\")'}\n",
			claims: map[string]any{"text": strings.Repeat("a", 25_000), "part": strings.Repeat("b", 3_500)}, err: "cost budget exceeded"},
		{name: "dear rule", rest: sub + "  claimValidationRules:\n  - {expression: '!claims.text.contains(claims.part)'}\n",
			claims: map[string]any{"text": strings.Repeat("a", 25_000), "part": strings.Repeat("b", 12_000)}, err: "cost limit exceeded"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := startAuthenticator(t, header+"jwt:\n"+issuerConfig(i, tt.rest))
			w.awaitLog(t, reachable)
			r, ok, err := w.AuthenticateToken(t.Context(), i.Token(tt.claims), nil)
			if tt.err != "" {
				if ok || err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, %v, want %q", r, err, tt.err)
				}
				return
			}
			if err != nil || !ok {
				t.Fatalf("got %v, %v, want an authenticated user", ok, err)
			}
			if !reflect.DeepEqual(r.User, tt.want) {
				t.Errorf("got %+v, want %v", r.User, tt.want)
			}
		})
	}
}

// TestTokensAreNeverLogged checks that neither errors nor log messages contain a rejected token.
func TestTokensAreNeverLogged(t *testing.T) {
	i := oidctest.New(t)
	file := filepath.Join(t.TempDir(), "authn.yaml")
	if err := os.WriteFile(file, []byte(header+"jwt:\n"+issuerConfig(i, usernameMapping(""))), 0o600); err != nil {
		t.Fatal(err)
	}
	var logs bytes.Buffer
	a, err := authnconfig.New(authnconfig.Config{File: file, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	token := i.Token(map[string]any{"aud": "x"})
	if _, _, err := a.AuthenticateToken(t.Context(), token, nil); err == nil || strings.Contains(err.Error(), token) || strings.Contains(logs.String(), token) {
		t.Errorf("got %v", err)
	}
	if _, _, err := a.AuthenticateToken(t.Context(), strings.Repeat("a", authenticator.MaxTokenBytes+1), nil); !errors.Is(err, authenticator.ErrTooLong) {
		t.Errorf("got %v, want error %v", err, authenticator.ErrTooLong)
	}
}

// metricValue returns a metric with a status.
func (w *fixture) metricValue(t *testing.T, name, status string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasSuffix(f.GetName(), name) {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "status" && l.GetValue() == status {
					return m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return 0
}
