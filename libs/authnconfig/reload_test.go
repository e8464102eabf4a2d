package authnconfig_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
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
func issuerConfig(issuer *oidctest.Provider, mappingsAndRules string) string {
	ca := strings.ReplaceAll(strings.TrimSpace(issuer.CA()), "\n", "\n      ")
	return fmt.Sprintf("- issuer:\n    url: %s\n    audiences: [%s]\n    certificateAuthority: |\n      %s\n%s",
		issuer.URL(), oidctest.ClientID, ca, mappingsAndRules)
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
	started := &fixture{
		file:     filepath.Join(t.TempDir(), "authn.yaml"),
		logs:     make(chan string, 100),
		registry: prometheus.NewRegistry(),
	}
	started.writeFile(t, content)
	var err error
	started.Authenticator, err = authnconfig.New(authnconfig.Config{
		File:    started.file,
		Logger:  slog.New(slog.NewTextHandler(logLines(started.logs), nil)),
		Metrics: authnconfig.NewMetrics(started.registry, "me"), Reloaded: func() { started.reloads.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- started.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want error %v", err, context.Canceled)
		}
	})
	return started
}

// logLines is a writer that sends log lines to a channel.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func (f *fixture) writeFile(t *testing.T, content string) {
	t.Helper()
	next := f.file + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(content), 0o600), os.Rename(next, f.file)); err != nil {
		t.Fatal(err)
	}
}

// awaitLog waits until all texts were logged, in any order.
func (f *fixture) awaitLog(t *testing.T, texts ...string) {
	t.Helper()
	for line := range f.logs {
		texts = slices.DeleteFunc(texts, func(text string) bool { return strings.Contains(line, text) })
		if len(texts) == 0 {
			return
		}
	}
}

// authenticate returns the user of a token, or the reason of its rejection.
func (f *fixture) authenticate(t *testing.T, token string) string {
	t.Helper()
	resp, ok, err := f.AuthenticateToken(t.Context(), token, nil)
	switch {
	case err != nil:
		return err.Error()
	case !ok:
		return "no opinion"
	}
	return resp.User.Name
}

// Parts of log messages that awaitLog waits for.
const (
	logReachable = "OIDC issuer is reachable"
	logReloaded  = "configuration reloaded"
	logKept      = "keeping the previous one"
)

// expectUser checks the user of a token, or the reason of its rejection. condition says when.
func (w *fixture) expectUser(t *testing.T, condition, token, want string) {
	t.Helper()
	if got := w.authenticate(t, token); got != want {
		t.Errorf("%s: got user %q, want %q", condition, got, want)
	}
}

// TestReloadAppliesIssuerChanges checks that a reload changes rules, and adds and removes issuers.
// The keys of an unchanged issuer stay valid.
func TestReloadAppliesIssuerChanges(t *testing.T) {
	first, second := oidctest.New(t), oidctest.New(t)
	fixture := startAuthenticator(t, header+"jwt:\n"+issuerConfig(first, usernameMapping("a:")))
	fixture.awaitLog(t, logReachable)
	if err := fixture.Check(); err != nil {
		t.Fatal(err)
	}
	fixture.expectUser(t, "configured issuer", first.Token(nil), "a:ada")
	fixture.expectUser(t, "unconfigured issuer", second.Token(nil), "no opinion")
	keyRequests := first.KeyRequests()

	fixture.writeFile(t, header+"jwt:\n"+issuerConfig(first, usernameMapping("b:"))+issuerConfig(second, usernameMapping("c:")))
	fixture.awaitLog(t, logReloaded, logReachable)
	fixture.expectUser(t, "issuer with another prefix", first.Token(nil), "b:ada")
	fixture.expectUser(t, "added issuer", second.Token(nil), "c:ada")
	if requests := first.KeyRequests(); requests != keyRequests {
		t.Errorf("an unchanged issuer got %d more requests, want none", requests-keyRequests)
	}
	first.Rotate("RS256")
	fixture.expectUser(t, "unchanged issuer with a new key", first.Token(nil), "b:ada")

	fixture.writeFile(t, header+"jwt:\n"+issuerConfig(second, usernameMapping("")))
	fixture.awaitLog(t, logReloaded)
	fixture.expectUser(t, "removed issuer", first.Token(nil), "no opinion")
	fixture.expectUser(t, "remaining issuer", second.Token(nil), "ada")
	// Stopping an issuer must not affect others.
	second.Rotate("RS256")
	fixture.expectUser(t, "remaining issuer with a new key", second.Token(nil), "ada")
	fixture.writeFile(t, header+"jwt:\n"+issuerConfig(second, usernameMapping("d:")))
	fixture.awaitLog(t, logReloaded)
	fixture.expectUser(t, "remaining issuer with another prefix", second.Token(nil), "d:ada")
	if got := fixture.metricValue(t, "automatic_reloads_total", "success"); got != 3 || fixture.reloads.Load() != 3 {
		t.Errorf("got %v counted reloads and %d calls of Reloaded, want 3 of each", got, fixture.reloads.Load())
	}
	if got := fixture.metricValue(t, "automatic_reload_last_timestamp_seconds", "success"); got < 1e9 {
		t.Errorf("last reload = %v, want at least 1e9", got)
	}
}

// TestInvalidFileKeepsConfiguration checks that an invalid file is counted as a failed reload, and
// that the previous configuration stays in use.
func TestInvalidFileKeepsConfiguration(t *testing.T) {
	issuer := oidctest.New(t)
	validFile := header + "jwt:\n" + issuerConfig(issuer, usernameMapping("a:")) + "anonymous: {enabled: true}\n"
	fixture := startAuthenticator(t, validFile)
	fixture.awaitLog(t, logReachable)
	for i, invalidFile := range []string{"", "{", header + "x: 1\n", strings.Replace(validFile, "claim: sub", "claim: ''", 1)} {
		fixture.writeFile(t, invalidFile)
		fixture.awaitLog(t, logKept)
		if got := fixture.authenticate(t, issuer.Token(nil)); got != "a:ada" || !fixture.Anonymous().Allows("/") {
			t.Errorf("invalid file %q: got %q, want the previous configuration, user a:ada", invalidFile, got)
		}
		if got := fixture.metricValue(t, "automatic_reloads_total", "failure"); got != float64(i+1) {
			t.Errorf("got %v counted failures, want %d", got, i+1)
		}
	}
	if err := os.Remove(fixture.file); err != nil {
		t.Fatal(err)
	}
	fixture.awaitLog(t, logKept)
	fixture.writeFile(t, header+"jwt:\n"+issuerConfig(issuer, usernameMapping("b:"))+"anonymous: {enabled: false}\n")
	fixture.awaitLog(t, logReloaded)
	if got := fixture.authenticate(t, issuer.Token(nil)); got != "b:ada" || fixture.Anonymous().Allows("/") {
		t.Errorf("got user %q, want b:ada, and no anonymous requests", got)
	}
	fixture.writeFile(t, header+"jwt:\n"+issuerConfig(issuer, usernameMapping("c:")))
	fixture.awaitLog(t, logReloaded)
	if got := fixture.authenticate(t, issuer.Token(nil)); got != "c:ada" || fixture.Anonymous() == nil || fixture.Anonymous().Allows("/") {
		t.Errorf("file without anonymous setting: got user %q, want c:ada, and no anonymous requests", got)
	}
}

// TestReloadRejectsNoValidToken authenticates tokens continuously while the file changes.
func TestReloadRejectsNoValidToken(t *testing.T) {
	issuer := oidctest.New(t)
	fixture := startAuthenticator(t, header+"jwt:\n"+issuerConfig(issuer, usernameMapping("a:")))
	fixture.awaitLog(t, logReachable)
	token := issuer.Token(nil)
	var stop atomic.Bool
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for !stop.Load() {
				response, ok, err := fixture.AuthenticateToken(t.Context(), token, nil)
				if !ok || !strings.HasSuffix(response.User.Name, ":ada") {
					t.Errorf("got %+v, %v, %v, want a user of ada", response, ok, err)
					return
				}
			}
		})
	}
	for i := range 5 {
		// A new metadata URL creates a new provider for the issuer.
		mapping := usernameMapping(fmt.Sprintf("%d:", i))
		content := header + "jwt:\n" + issuerConfig(issuer, mapping)
		if i%2 == 0 {
			content = strings.Replace(content, "    audiences:", "    discoveryURL: "+issuer.DiscoveryURL()+"\n    audiences:", 1)
		}
		fixture.writeFile(t, content)
		fixture.awaitLog(t, logReloaded)
	}
	stop.Store(true)
	clients.Wait()
	fixture.expectUser(t, "after the last reload", token, "4:ada")
}

// TestUnreachableIssuerIsNotInitialized checks that tokens of an unreachable issuer fail with
// ErrNotInitialized, and that other issuers are not affected.
func TestUnreachableIssuerIsNotInitialized(t *testing.T) {
	reachableIssuer, unreachableIssuer := oidctest.New(t), oidctest.New(t)
	unreachableIssuer.SetStatus(503)
	fixture := startAuthenticator(t, header+"jwt:\n"+issuerConfig(reachableIssuer, usernameMapping(""))+issuerConfig(unreachableIssuer, usernameMapping("")))
	fixture.awaitLog(t, logReachable, "failed to read metadata")
	fixture.expectUser(t, "reachable issuer", reachableIssuer.Token(nil), "ada")
	if got := fixture.authenticate(t, unreachableIssuer.Token(nil)); !strings.Contains(got, "is not initialized") {
		t.Errorf("got %q, want an error that contains %q", got, "is not initialized")
	}
	if err := fixture.Check(); !errors.Is(err, oidctoken.ErrNotInitialized) || !strings.Contains(err.Error(), unreachableIssuer.URL()) {
		t.Errorf("Check() = %v, want error %v that names %s", err, oidctoken.ErrNotInitialized, unreachableIssuer.URL())
	}
}

// TestNewFailsForInvalidOrMissingFile checks that New fails for an invalid and for a missing file.
func TestNewFailsForInvalidOrMissingFile(t *testing.T) {
	dir := t.TempDir()
	invalidFile := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(invalidFile, []byte(header+"x: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		invalidFile:                     "bad.yaml: line 3: unknown field \"x\"",
		filepath.Join(dir, "none.yaml"): "--authentication-config: open",
	} {
		if _, err := authnconfig.New(authnconfig.Config{
			File:   file,
			Logger: slog.New(slog.DiscardHandler),
		}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestTokensAreNeverLogged checks that neither errors nor log messages contain a rejected token.
func TestTokensAreNeverLogged(t *testing.T) {
	issuer := oidctest.New(t)
	file := filepath.Join(t.TempDir(), "authn.yaml")
	if err := os.WriteFile(file, []byte(header+"jwt:\n"+issuerConfig(issuer, usernameMapping(""))), 0o600); err != nil {
		t.Fatal(err)
	}
	var logs bytes.Buffer
	authn, err := authnconfig.New(authnconfig.Config{File: file, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	token := issuer.Token(map[string]any{"aud": "x"})
	if _, _, err := authn.AuthenticateToken(t.Context(), token, nil); err == nil || strings.Contains(err.Error(),
		token) || strings.Contains(logs.String(), token) {
		t.Errorf("token for another audience: got error %v, log %q, want an error, and the token in neither", err, logs.String())
	}
	if _, _, err := authn.AuthenticateToken(t.Context(), strings.Repeat("a", authenticator.MaxTokenBytes+1),
		nil); !errors.Is(err, authenticator.ErrTooLong) {
		t.Errorf("token over %d bytes: got %v, want error %v", authenticator.MaxTokenBytes, err, authenticator.ErrTooLong)
	}
}

// metricValue returns the value of the metric with the suffix name and the label status. It returns
// 0 if there is none.
func (w *fixture) metricValue(t *testing.T, name, status string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if !strings.HasSuffix(family.GetName(), name) {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "status" && label.GetValue() == status {
					return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
				}
			}
		}
	}
	return 0
}
