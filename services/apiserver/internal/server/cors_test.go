package server_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/server"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// TestCheckOriginsRequiresAnchors checks that patterns of origins without anchors are rejected.
func TestCheckOriginsRequiresAnchors(t *testing.T) {
	const notAnchored = "--cors-allowed-origins has an invalid regular expression: " +
		"regular expression does not pin to start/end of host in the origin header, help: "
	for pattern, want := range map[string]string{
		`example.com`:                notAnchored,
		`^example\.com`:              notAnchored,
		`^https?example\.com`:        notAnchored,
		`example\.com$`:              notAnchored,
		`example\.com(:|$)`:          notAnchored,
		`//example\.com`:             notAnchored,
		`//example\.com(:|$)`:        "",
		`^https://example\.com(:|$)`: "",
		`//example\.com:`:            "",
		`^.*$`:                       "",
		`^https://example\.com`:      "", // as in Kubernetes; the log warns
		``:                           "empty value in --cors-allowed-origins, help: ",
		`^(`:                         "--cors-allowed-origins has an invalid regular expression: error parsing regexp: missing closing ): `^(`, help: ",
	} {
		err := errors.Join(server.CheckOrigins([]string{`^ok$`, pattern})...)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", pattern, err, want)
		}
	}
}

// newCORSHandler returns a handler that answers 200 to all requests that pass the filters, and its
// log.
func newCORSHandler(t *testing.T, origins ...string) (http.Handler, *bytes.Buffer) {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	handler, err := server.Handler(server.Config{
		Mux:            http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		Authenticator:  fixedUser{&request.User{Name: "u"}},
		Authorizer:     authz.AlwaysAllow{},
		Metrics:        telemetry.NewMetrics(prometheus.NewRegistry()),
		Kinds:          apiset.NewLive(apiset.Builder{}.Set(catalog, 0)),
		Logger:         slog.New(slog.NewTextHandler(&log, nil)),
		RequestTimeout: time.Minute,
		AllowedOrigins: origins,
	})
	if err != nil {
		t.Fatal(err)
	}
	return handler, &log
}

// TestCORSAllowsOnlyConfiguredOrigins checks that only origins that match a pattern get CORS
// headers and responses to preflight requests.
func TestCORSAllowsOnlyConfiguredOrigins(t *testing.T) {
	handler, log := newCORSHandler(t, `//example\.com(:|$)`, `^http://localhost:`)
	for origin, allowed := range map[string]bool{
		"https://example.com":                   true,
		"http://example.com:8080":               true,
		"http://localhost:80":                   true,
		"https://evil-example.com":              false,
		"https://example.com.attacker.net":      false,
		"https://evil-example.com.attacker.net": false,
		"":                                      false,
	} {
		for _, method := range []string{http.MethodGet, http.MethodOptions} {
			r := httptest.NewRequest(method, "/api", nil)
			if origin != "" {
				r.Header.Set("Origin", origin)
			}
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, r)
			want := ""
			if allowed {
				want = origin
			}
			preflight := allowed && method == http.MethodOptions
			if got := response.Header().Get("Access-Control-Allow-Origin"); got != want || (response.Code == http.StatusNoContent) != preflight {
				t.Errorf("%s from %q: got allowed origin %q and code %d, want %q", method, origin, got, response.Code, want)
			}
		}
	}
	if log.Len() > 0 {
		t.Errorf("anchored patterns: got log %s, want none", log)
	}
	handler, _ = newCORSHandler(t, `^.*$`)
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, httptest.NewRequest(http.MethodOptions, "/api", nil))
	if _, exists := response.Header()["Access-Control-Allow-Origin"]; exists || response.Code == http.StatusNoContent {
		t.Errorf("request without Origin: got %d %v, want no CORS headers", response.Code, response.Header())
	}
	if handler, err := server.Handler(server.Config{AllowedOrigins: []string{`^(`}}); err == nil || handler != nil {
		t.Errorf("pattern %q: got handler %v, error %v, want nil and an error", `^(`, handler, err)
	}
	_, log = newCORSHandler(t, `^https://example\.com`)
	if !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("pattern without the end of the host: got log %s, want a warning", log)
	}
}
