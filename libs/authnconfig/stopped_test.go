package authnconfig_test

import (
	"context"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/authenticator"
	"binnacle/libs/authnconfig"
	"binnacle/libs/oidctoken/oidctest"
)

// silentIssuer is an issuer that never responds.
type silentIssuer struct {
	*httptest.Server
	requested, canceled chan struct{}
}

func newSilentIssuer(t *testing.T) *silentIssuer {
	issuer := &silentIssuer{requested: make(chan struct{}, 100), canceled: make(chan struct{}, 100)}
	issuer.Server = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		issuer.requested <- struct{}{}
		<-r.Context().Done()
		issuer.canceled <- struct{}{}
	}))
	t.Cleanup(issuer.Close)
	return issuer
}

func (s *silentIssuer) config() string {
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return "- issuer:\n    url: " + s.URL + "\n    audiences: [a]\n    certificateAuthority: |\n      " +
		strings.ReplaceAll(strings.TrimSpace(ca), "\n", "\n      ") + "\n" + usernameMapping("")
}

// TestRemovedIssuerIsRejectedAtOnce checks that a removed issuer is rejected and later changes
// apply, while another issuer does not respond.
func TestRemovedIssuerIsRejectedAtOnce(t *testing.T) {
	removedFirst, removedSecond, silentIssuer := oidctest.New(t), oidctest.New(t), newSilentIssuer(t)
	fixture := startAuthenticator(t, header+"jwt:\n"+issuerConfig(removedFirst, usernameMapping(""))+issuerConfig(removedSecond, usernameMapping("a:")))
	fixture.awaitLog(t, logReachable)
	fixture.awaitLog(t, logReachable)
	fixture.writeFile(t, header+"jwt:\n"+issuerConfig(removedSecond, usernameMapping("b:"))+silentIssuer.config())
	<-silentIssuer.requested
	fixture.awaitLog(t, logReloaded)
	if got := fixture.authenticate(t, removedFirst.Token(nil)) + ", " + fixture.authenticate(t, removedSecond.Token(nil)); got != "no opinion, b:ada" {
		t.Errorf("while an issuer does not respond: %s, want \"no opinion, b:ada\"", got)
	}
	fixture.writeFile(t, header+"jwt:\n"+silentIssuer.config())
	fixture.awaitLog(t, logReloaded)
	if got := fixture.authenticate(t, removedSecond.Token(nil)); got != "no opinion" {
		t.Errorf("while the issuer still does not respond: %s, want \"no opinion\"", got)
	}
	if len(silentIssuer.canceled) > 0 {
		t.Error("the request to the silent issuer was canceled, want it still open")
	}
}

// TestFormerKeysAreValidUntilSwapTimeout checks that the keys of the previous URL are used with the
// current rules, for a limited time, while the new keys are unknown.
func TestFormerKeysAreValidUntilSwapTimeout(t *testing.T) {
	issuer, silentIssuer := oidctest.New(t), newSilentIssuer(t)
	fixture := startAuthenticator(t, header+"jwt:\n"+issuerConfig(issuer, usernameMapping("a:")))
	fixture.awaitLog(t, logReachable)
	moved := func(mapping string) string {
		return header + "jwt:\n" + strings.Replace(issuerConfig(issuer, mapping), "    audiences:",
			"    discoveryURL: "+silentIssuer.URL+"/there\n    audiences:", 1)
	}
	expiries := map[time.Time]bool{}
	for _, prefix := range []string{"b:", "c:"} { // the second reload does not change the URL
		fixture.writeFile(t, moved(usernameMapping(prefix)))
		fixture.awaitLog(t, logReloaded)
		resp, ok, err := fixture.AuthenticateToken(t.Context(), issuer.Token(nil), nil)
		if err != nil || !ok || resp.User.Name != prefix+"ada" {
			t.Fatalf("got %+v, %v, %v, want user %s", resp, ok, err, prefix+"ada")
		}
		expiries[resp.Expires] = true
		if time.Until(resp.Expires) > time.Minute {
			t.Errorf("former keys are valid until %v, want a time within %v", resp.Expires, time.Minute)
		}
	}
	if len(expiries) != 1 {
		t.Errorf("a further reload extends the validity of former keys: %v, want 1", expiries)
	}
	unknownKeyToken := oidctest.New(t).Token(map[string]any{"iss": issuer.URL()})
	if _, ok, err := fixture.AuthenticateToken(t.Context(), unknownKeyToken, nil); ok || !errors.Is(err, authenticator.ErrUnavailable) {
		t.Errorf("unknown key while the new keys are unknown: %v, %v, want false, error %v", ok, err,
			authenticator.ErrUnavailable)
	}
}

// TestRemovedIssuerIsNotRequested checks that a request to a removed issuer is canceled.
func TestRemovedIssuerIsNotRequested(t *testing.T) {
	silentIssuer := newSilentIssuer(t)
	w := startAuthenticator(t, header+"jwt:\n"+silentIssuer.config())
	<-silentIssuer.requested
	w.writeFile(t, header+"jwt: []\n")
	w.awaitLog(t, logReloaded)
	bound := time.NewTimer(5 * time.Second) // shorter than the timeout of a request
	defer bound.Stop()
	select {
	case <-silentIssuer.canceled:
	case <-bound.C:
		t.Error("the request to the removed issuer is open after 5 s, want it canceled")
	}
}

// TestReloadWithoutMetricsOrInstance checks that reloads work without metrics, and that an empty
// instance gets an empty label.
func TestReloadWithoutMetricsOrInstance(t *testing.T) {
	registry := prometheus.NewRegistry()
	for name, metrics := range map[string]*authnconfig.Metrics{"no metrics": nil, "no name": authnconfig.NewMetrics(registry, "")} {
		t.Run(name, func(t *testing.T) {
			w := &fixture{file: filepath.Join(t.TempDir(), "authn.yaml")}
			w.writeFile(t, header+"anonymous: {enabled: true}\n")
			reloaded := make(chan struct{}, 1)
			authn, err := authnconfig.New(authnconfig.Config{
				File: w.file, Logger: slog.New(slog.DiscardHandler), Metrics: metrics, Reloaded: func() { reloaded <- struct{}{} },
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error)
			go func() { done <- authn.Run(ctx) }()
			w.writeFile(t, header+"anonymous: {enabled: false}\n")
			<-reloaded
			if authn.Anonymous().Allows("/") {
				t.Error("Allows(\"/\") = true after the reload, want false as in the new file")
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Run() = %v, want error %v", err, context.Canceled)
			}
		})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	reloaded := 0
	for _, metricFamily := range families {
		for _, m := range metricFamily.GetMetric() {
			for _, labelPair := range m.GetLabel() {
				if labelPair.GetName() != "apiserver_id_hash" {
					continue
				}
				reloaded++
				if labelPair.GetValue() != "" {
					t.Errorf("metric %s has label %q, want \"\"", metricFamily.GetName(), labelPair.GetValue())
				}
			}
		}
	}
	if reloaded == 0 {
		t.Error("metrics count 0 reloads, want at least one")
	}
}
