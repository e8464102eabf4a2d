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
func issuerConfig(i *oidctest.Provider, rest string) string {
	ca := strings.ReplaceAll(strings.TrimSpace(i.CA()), "\n", "\n      ")
	return fmt.Sprintf("- issuer:\n    url: %s\n    audiences: [%s]\n    certificateAuthority: |\n      %s\n%s",
		i.URL(), oidctest.ClientID, ca, rest)
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
	w := &fixture{
		file:     filepath.Join(t.TempDir(), "authn.yaml"),
		logs:     make(chan string, 100),
		registry: prometheus.NewRegistry(),
	}
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
	resp, ok, err := w.AuthenticateToken(t.Context(), token, nil)
	switch {
	case err != nil:
		return err.Error()
	case !ok:
		return "no opinion"
	}
	return resp.User.Name
}

const (
	reachable = "OIDC issuer is reachable"
	reloaded  = "configuration reloaded"
	kept      = "keeping the previous one"
)

// TestReload changes the issuers in the file. An invalid file keeps the previous ones.
func TestReload(t *testing.T) {
	one, two := oidctest.New(t), oidctest.New(t)
	fixture := startAuthenticator(t, header+"jwt:\n"+issuerConfig(one, usernameMapping("a:")))
	fixture.awaitLog(t, reachable)
	if err := fixture.Check(); err != nil {
		t.Fatal(err)
	}
	if got := fixture.authenticate(t, one.Token(nil)); got != "a:ada" {
		t.Errorf("got %q, want \"a:ada\"", got)
	}
	if got := fixture.authenticate(t, two.Token(nil)); got != "no opinion" {
		t.Errorf("unconfigured issuer: %q, want \"no opinion\"", got)
	}
	asked := one.KeyRequests()

	fixture.writeFile(t, header+"jwt:\n"+issuerConfig(one, usernameMapping("b:"))+issuerConfig(two, usernameMapping("c:")))
	fixture.awaitLog(t, reloaded, reachable)
	if got := fixture.authenticate(t, one.Token(nil)); got != "b:ada" {
		t.Errorf("got %q, want \"b:ada\"", got)
	}
	if got := fixture.authenticate(t, two.Token(nil)); got != "c:ada" {
		t.Errorf("got %q, want \"c:ada\"", got)
	}
	if n := one.KeyRequests(); n != asked {
		t.Errorf("an unchanged issuer got %d more requests, want none", n-asked)
	}
	one.Rotate("RS256")
	if got := fixture.authenticate(t, one.Token(nil)); got != "b:ada" {
		t.Errorf("unchanged issuer with a new key: %q, want \"b:ada\"", got)
	}

	fixture.writeFile(t, header+"jwt:\n"+issuerConfig(two, usernameMapping("")))
	fixture.awaitLog(t, reloaded)
	if got := fixture.authenticate(t, one.Token(nil)); got != "no opinion" {
		t.Errorf("removed issuer: %q, want \"no opinion\"", got)
	}
	if got := fixture.authenticate(t, two.Token(nil)); got != "ada" {
		t.Errorf("got %q, want \"ada\"", got)
	}
	// Stopping an issuer must not affect others.
	two.Rotate("RS256")
	if got := fixture.authenticate(t, two.Token(nil)); got != "ada" {
		t.Errorf("got %q, want \"ada\"", got)
	}
	fixture.writeFile(t, header+"jwt:\n"+issuerConfig(two, usernameMapping("d:")))
	fixture.awaitLog(t, reloaded)
	if got := fixture.authenticate(t, two.Token(nil)); got != "d:ada" {
		t.Errorf("got %q, want \"d:ada\"", got)
	}
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
	one := oidctest.New(t)
	good := header + "jwt:\n" + issuerConfig(one, usernameMapping("a:")) + "anonymous: {enabled: true}\n"
	fixture := startAuthenticator(t, good)
	fixture.awaitLog(t, reachable)
	for i, bad := range []string{"", "{", header + "x: 1\n", strings.Replace(good, "claim: sub", "claim: ''", 1)} {
		fixture.writeFile(t, bad)
		fixture.awaitLog(t, kept)
		if got := fixture.authenticate(t, one.Token(nil)); got != "a:ada" || !fixture.Anonymous().Allows("/") {
			t.Errorf("invalid file %q: got %q, want the previous configuration, user a:ada", bad, got)
		}
		if got := fixture.metricValue(t, "automatic_reloads_total", "failure"); got != float64(i+1) {
			t.Errorf("got %v counted failures, want %d", got, i+1)
		}
	}
	if err := os.Remove(fixture.file); err != nil {
		t.Fatal(err)
	}
	fixture.awaitLog(t, kept)
	fixture.writeFile(t, header+"jwt:\n"+issuerConfig(one, usernameMapping("b:"))+"anonymous: {enabled: false}\n")
	fixture.awaitLog(t, reloaded)
	if got := fixture.authenticate(t, one.Token(nil)); got != "b:ada" || fixture.Anonymous().Allows("/") {
		t.Errorf("got user %q, want b:ada, and no anonymous requests", got)
	}
	fixture.writeFile(t, header+"jwt:\n"+issuerConfig(one, usernameMapping("c:")))
	fixture.awaitLog(t, reloaded)
	if got := fixture.authenticate(t, one.Token(nil)); got != "c:ada" || fixture.Anonymous() == nil || fixture.Anonymous().Allows("/") {
		t.Errorf("file without anonymous setting: got user %q, want c:ada, and no anonymous requests", got)
	}
}

// TestReloadRejectsNoValidToken authenticates tokens continuously while the file changes.
func TestReloadRejectsNoValidToken(t *testing.T) {
	one := oidctest.New(t)
	fixture := startAuthenticator(t, header+"jwt:\n"+issuerConfig(one, usernameMapping("a:")))
	fixture.awaitLog(t, reachable)
	token := one.Token(nil)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				r, ok, err := fixture.AuthenticateToken(t.Context(), token, nil)
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
		fixture.writeFile(t, content)
		fixture.awaitLog(t, reloaded)
	}
	stop.Store(true)
	wg.Wait()
	if got := fixture.authenticate(t, token); got != "4:ada" {
		t.Errorf("got %q, want \"4:ada\"", got)
	}
}

// TestUnreachableIssuerIsNotInitialized checks that tokens of an unreachable issuer fail with
// ErrNotInitialized, and that other issuers are not affected.
func TestUnreachableIssuerIsNotInitialized(t *testing.T) {
	one, down := oidctest.New(t), oidctest.New(t)
	down.SetStatus(503)
	fixture := startAuthenticator(t, header+"jwt:\n"+issuerConfig(one, usernameMapping(""))+issuerConfig(down, usernameMapping("")))
	fixture.awaitLog(t, reachable, "failed to read metadata")
	if got := fixture.authenticate(t, one.Token(nil)); got != "ada" {
		t.Errorf("got %q, want \"ada\"", got)
	}
	if got := fixture.authenticate(t, down.Token(nil)); !strings.Contains(got, "is not initialized") {
		t.Errorf("got %q, want an error that contains %q", got, "is not initialized")
	}
	if err := fixture.Check(); !errors.Is(err, oidctoken.ErrNotInitialized) || !strings.Contains(err.Error(), down.URL()) {
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
	if _, _, err := a.AuthenticateToken(t.Context(), token, nil); err == nil || strings.Contains(err.Error(),
		token) || strings.Contains(logs.String(), token) {
		t.Errorf("got %v", err)
	}
	if _, _, err := a.AuthenticateToken(t.Context(), strings.Repeat("a", authenticator.MaxTokenBytes+1),
		nil); !errors.Is(err, authenticator.ErrTooLong) {
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
